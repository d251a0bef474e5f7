//! The one place where ports and adapters meet.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use countersign_exec::{Directories, Machine, SandboxExecutor, Zygote, first};
use countersign_gateway::approval::board::{Board, BoardParts};
use countersign_gateway::approval::journal::Journal;
use countersign_gateway::approval::{Alone, Approver, Bell};
use countersign_gateway::audit::event::{Actor, ActorType};
use countersign_gateway::audit::keyed::DigestKey;
use countersign_gateway::audit::redact::Redactor;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::policy::effective::EffectivePolicy;
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::desk::Desk;
use countersign_gateway::session::lifetime::Sessions;
use countersign_gateway::spine::{Gateway, Outlook, Ports, Settings};

use countersign_server::stdio::SealKey;
use countersign_store::{Durability, Options, Store};

use crate::config::Surroundings;

/// What a server starts this program with when the process that makes its sandboxes was killed.
pub(crate) const ZYGOTE: &str = "zygote";

/// What a command of ours that runs others needs before anything else: a zygote forked while this
/// process was small, and the directories it was told of.
pub(crate) struct Launchpad {
    pub(crate) zygote: Zygote,
    pub(crate) directories: Directories,
}

impl Launchpad {
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        crate::descriptors::require_least()?;
        keep_configuration_apart();
        first::step_aside().context("cannot leave the place of the first process")?;
        Self::on(crate::private::directories(uid() == 0)?)
    }

    /// On directories that somebody else removes.
    pub(crate) fn on(directories: Directories) -> anyhow::Result<Self> {
        let zygote = SandboxExecutor::start_zygote(&directories, vec![ZYGOTE.into()])
            .context("cannot start the sandbox's helper process")?;
        Ok(Self { zygote, directories })
    }
}

/// Makes the directories of the operator's file and of the usual state where there are none yet. What is there is covered; what
/// is not there a command could make, where the home is its workspace, and write what counts from the next start on.
fn keep_configuration_apart() {
    let Ok(surroundings) = Surroundings::of_this_process() else {
        return;
    };
    for directory in surroundings
        .config_dir()
        .into_iter()
        .chain(surroundings.default_state_dir())
    {
        // A home that cannot be written needs no such thing.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    }
}

/// Everything the gateway is made of.
pub(crate) struct Parts {
    pub(crate) policy: EffectivePolicy,
    pub(crate) settings: Settings,
    pub(crate) redactor: Redactor,
    pub(crate) board: Arc<Board>,
    pub(crate) record: Arc<Store>,
}

pub(crate) fn gateway(parts: Parts, launchpad: Launchpad) -> Arc<Gateway> {
    let digests = digest_key(&parts.record);
    let executor = SandboxExecutor::new(launchpad.zygote, launchpad.directories, uid());
    let ports = Ports {
        outlook: outlook(&parts.policy),
        board: parts.board,
        executor: Arc::new(executor),
        record: parts.record,
        redactor: parts.redactor,
        digests,
        clock: Clock::system(),
        ids: IdSource::random(),
    };
    Gateway::new(parts.policy, parts.settings, ports)
}

/// This machine, as far as a policy lets it be seen.
pub(crate) fn outlook(policy: &EffectivePolicy) -> Outlook {
    let machine = Arc::new(Machine::new(policy.command.path.clone()));
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| policy.command.env_allow.contains(name))
        .collect();
    Outlook {
        programs: machine.clone(),
        directories: machine,
        environment,
    }
}

/// The questions of this state directory, and whom this process asks by itself.
pub(crate) fn board(
    record: &Arc<Store>,
    redactor: &Redactor,
    bell: Arc<dyn Bell>,
    approvers: Vec<Arc<dyn Approver>>,
) -> Arc<Board> {
    Board::new(BoardParts {
        record: record.clone(),
        approvals: record.clone(),
        bell,
        approvers,
        redactor: redactor.clone(),
        clock: Clock::system(),
        ids: IdSource::random(),
    })
}

/// Where this process's approvers write down how asking went.
pub(crate) fn journal(record: &Arc<Store>, redactor: &Redactor) -> Journal {
    Journal {
        record: record.clone(),
        redactor: redactor.clone(),
        clock: Clock::system(),
        ids: IdSource::random(),
    }
}

/// How the record of these settings is opened.
pub(crate) fn options(settings: &crate::config::Settings, durability: Durability) -> Options {
    let mut options = Options::new(durability, Clock::system());
    options.witness = settings.audit.witness.as_deref().map(crate::witness::at);
    options.on(settings.database.as_ref().map(|(url, _)| url.clone()))
}

/// The bell of a process that stays. Without one decisions are noticed a little later.
pub(crate) fn bell(record: &Store, state_dir: &Path) -> Arc<dyn Bell> {
    match record.hang_bell(state_dir) {
        Ok(bell) => bell,
        Err(error) => {
            tracing::warn!(%error, "other processes cannot wake this one; it looks from time to time");
            Arc::new(Alone)
        }
    }
}

/// The sessions of every transport, kept in the record.
pub(crate) fn sessions(record: &Arc<Store>, redactor: &Redactor) -> Arc<dyn Sessions> {
    let desk = Desk::new(record.clone(), redactor.clone(), Clock::system(), IdSource::random());
    Arc::new(desk)
}

/// The tokens that clients and people come with, as the record keeps them.
pub(crate) fn credentials(record: &Arc<Store>) -> Arc<dyn Credentials> {
    record.credentials()
}

/// Opens the record and closes what a crash left open.
pub(crate) fn record(state_dir: &Path, options: Options) -> anyhow::Result<Store> {
    let clock = options.clock.clone();
    let store = Store::open(state_dir, options).context("cannot open the record")?;
    store
        .sweep_abandoned(clock.now(), &IdSource::random())
        .context("cannot close what an earlier server left open")?;
    Ok(store)
}

/// What calls and questions are known again by is made with it: the same in every process of this record, as the same call
/// may come to any of them.
pub(crate) fn digest_key(record: &Store) -> DigestKey {
    DigestKey::new(record.shared_key("what calls are known again by"))
}

/// What the states of modern clients are signed with: the same in every server of this record, so that a
/// client may come back to the next one.
pub(crate) fn seal_key(record: &Store) -> SealKey {
    SealKey::new(record.shared_key("request states of modern clients"))
}

/// The user this process runs as.
pub(crate) fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Lets a record be looked at without a trace. Dropping a store is a clean stop, which signs the chain's end, and
/// whoever only looks signs nothing of it.
pub(crate) fn leave_unsigned(record: &Arc<Store>) {
    std::mem::forget(record.clone());
}

/// Whoever types a command, as the record tells of them.
pub(crate) fn person() -> Actor {
    Actor {
        kind: ActorType::Human,
        id: user(),
    }
}

/// The person at this terminal, as the record calls them.
pub(crate) fn user() -> String {
    let named = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let named = named.ok().filter(|name| !name.is_empty());
    let uid = uid();
    named
        .or_else(|| name_in(&std::fs::read_to_string("/etc/passwd").ok()?, uid))
        .unwrap_or_else(|| format!("uid-{uid}"))
}

/// What a list of users such as `/etc/passwd` calls one.
fn name_in(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_has_the_name_that_the_machine_knows() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_in(users, 0).as_deref(), Some("root"));
        assert_eq!(name_in(users, 1000).as_deref(), Some("ada"));
        assert_eq!(name_in(users, 7), None);
    }
}
