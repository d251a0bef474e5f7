//! Who a command runs as. A server that is root never hands that to a command unless the operator
//! said so: it becomes the configured user, else the owner of the workspace, else nobody.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use countersign_gateway::policy::plan::RunAs;
use countersign_sandbox::Identity;

/// The user and group without rights that every Linux has.
const NOBODY: u32 = 65_534;

/// Why the configured user cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum IdentityError {
    #[error("`run_as` names `{0}`, which is not a user of this machine; correct it")]
    UnknownUser(String),
    #[error("`run_as` names `{0}`, which is root, and `run_as_non_root` forbids that; name another user")]
    Root(String),
    #[error(
        "`run_as` names `{0}`, but only a server that runs as root can change the user; start it as that user, or as root"
    )]
    NotRoot(String),
}

/// The identity for a plan, or none to keep the server's own.
pub(crate) fn settle(run_as: &RunAs, root: &Path, server_uid: u32) -> Result<Option<Identity>, IdentityError> {
    match &run_as.user {
        Some(user) if server_uid != 0 => {
            let own = lookup(user).is_some_and(|found| found.uid == server_uid);
            if own {
                Ok(None)
            } else {
                Err(IdentityError::NotRoot(user.clone()))
            }
        }
        Some(user) => match lookup(user) {
            None => Err(IdentityError::UnknownUser(user.clone())),
            Some(found) if found.uid == 0 && run_as.non_root => Err(IdentityError::Root(user.clone())),
            Some(found) if found.uid == 0 => Ok(None),
            Some(found) => Ok(Some(found)),
        },
        None if server_uid != 0 || !run_as.non_root => Ok(None),
        None => Ok(Some(owner(root))),
    }
}

/// Why commands cannot run as the user of `run_as`, and what to do about it.
pub fn obstacle(run_as: &RunAs, server_uid: u32) -> Option<String> {
    // Where a user is named, the workspace has no say in it.
    let settled = settle(run_as, Path::new("/"), server_uid);
    settled.err().map(|error| error.to_string())
}

/// Whom agents run as, and where that user's home is, if it has one: never root, whatever commands may be.
pub fn of_agents(user: Option<&str>, workspace: &Path, server_uid: u32) -> Result<AgentUser, String> {
    let run_as = RunAs {
        non_root: true,
        user: user.map(str::to_owned),
    };
    let identity = settle(&run_as, workspace, server_uid).map_err(|error| error.to_string())?;
    let home = identity.as_ref().and_then(|identity| home_of(identity.uid));
    Ok(AgentUser { identity, home })
}

/// The user of agents; no identity is the server's own user.
#[derive(Clone, Debug)]
pub struct AgentUser {
    pub identity: Option<Identity>,
    pub home: Option<PathBuf>,
}

/// A home that its user can use.
fn home_of(uid: u32) -> Option<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let entry = users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(uid)).then(|| fields.get(5).map(PathBuf::from))?
    })?;
    let owner = fs::metadata(&entry).ok()?.uid();
    (owner == uid).then_some(entry)
}

fn owner(root: &Path) -> Identity {
    let (uid, gid) = match fs::metadata(root) {
        Ok(metadata) if metadata.uid() != 0 => (metadata.uid(), metadata.gid()),
        Ok(_) | Err(_) => (NOBODY, NOBODY),
    };
    // The owner's group may still be root's.
    let gid = if gid == 0 { NOBODY } else { gid };
    Identity {
        uid,
        gid,
        groups: Vec::new(),
    }
}

/// What to do where commands run as nobody and cannot write the workspace, which is root's.
pub fn advice(run_as: &RunAs, root: &Path, server_uid: u32) -> Option<String> {
    const ANYBODY_WRITES: u32 = 0o002;
    let runs_as_nobody = server_uid == 0 && run_as.non_root && run_as.user.is_none();
    let metadata = fs::metadata(root).ok().filter(|_| runs_as_nobody)?;
    (metadata.uid() == 0 && metadata.mode() & ANYBODY_WRITES == 0).then(|| {
        let remedy = remedy(root);
        format!("commands run as uid {NOBODY}, since root owns the workspace, and cannot write it; {remedy}")
    })
}

/// How a workspace becomes one that commands can write.
pub fn remedy(root: &Path) -> String {
    let root = root.display();
    format!("give it to a user with `chown USER {root}`, or name one in `command_policy.run_as` that can write it")
}

/// Finds a user by name or number among the machine's own.
fn lookup(user: &str) -> Option<Identity> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let entry = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| match fields.as_slice() {
            [name, _, uid, _, ..] => *name == user || *uid == user,
            _ => false,
        });
    match entry.as_deref() {
        Some([name, _, uid, gid, ..]) => {
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            Some(Identity {
                uid,
                gid,
                groups: groups_of(name),
            })
        }
        _ => user.parse().ok().map(|uid| Identity {
            uid,
            gid: uid,
            groups: Vec::new(),
        }),
    }
}

/// The groups a user belongs to besides its own; root's is never among them.
fn groups_of(name: &str) -> Vec<u32> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let member = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        match fields.as_slice() {
            [_, _, gid, members] if members.split(',').any(|member| member == name) => gid.parse().ok(),
            _ => None,
        }
    };
    groups.lines().filter_map(member).filter(|gid| *gid != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_as(user: Option<&str>, non_root: bool) -> RunAs {
        RunAs {
            non_root,
            user: user.map(str::to_owned),
        }
    }

    #[test]
    fn root_is_handed_on_only_when_the_operator_says_so() {
        let root_owned = Path::new("/");
        let nobody = Identity {
            uid: NOBODY,
            gid: NOBODY,
            groups: vec![],
        };
        assert_eq!(settle(&run_as(None, true), root_owned, 0), Ok(Some(nobody)));
        assert_eq!(settle(&run_as(None, false), root_owned, 0), Ok(None));
        assert_eq!(
            settle(&run_as(Some("root"), true), root_owned, 0),
            Err(IdentityError::Root("root".into()))
        );
        assert_eq!(settle(&run_as(None, true), root_owned, 1000), Ok(None));
    }

    #[test]
    fn a_user_that_cannot_be_had_is_an_error() {
        let root = Path::new("/");
        assert_eq!(
            settle(&run_as(Some("no such user"), true), root, 0),
            Err(IdentityError::UnknownUser("no such user".into()))
        );
        assert_eq!(
            settle(&run_as(Some("daemon"), true), root, 1000),
            Err(IdentityError::NotRoot("daemon".into()))
        );
        let told = |user: &str, uid: u32| obstacle(&run_as(Some(user), true), uid);
        assert!(told("root", 0).unwrap().ends_with("name another user"));
        assert_eq!((told("4242", 0), told("4242", 4242)), (None, None));
        assert_eq!(
            settle(&run_as(Some("4242"), true), root, 0),
            Ok(Some(Identity {
                uid: 4242,
                gid: 4242,
                groups: vec![]
            }))
        );
    }
}
