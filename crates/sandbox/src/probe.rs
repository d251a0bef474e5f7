//! What this machine offers, layer by layer, for `doctor`. Nothing is guessed from versions: a keeper is made
//! with everything on, and its own report is what counts.

use crate::Layer;
use crate::cgroup::Cgroups;
use crate::keeper::report::KeeperReport;
use crate::landlock;
use crate::profile::{Identity, Limits, Mode, Network, NoExec, Profile};
use crate::sys;
use crate::zygote::{Options, Zygote, ZygoteError};

/// The lowest Landlock version that each promise needs.
pub const LANDLOCK_PROMISES: [(u32, &str); 6] = [
    (1, "files outside cannot be read, written or executed"),
    (2, "files can be moved between directories of the workspace"),
    (3, "files outside cannot be truncated"),
    (4, "tcp is refused also where no filter sees it"),
    (5, "devices outside take no commands"),
    (6, "abstract sockets and signals do not leave the sandbox"),
];

/// The user a probe runs as when it is root; the one that owns nothing.
const NOBODY: u32 = 65534;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// 0 when there is none.
    pub landlock_abi: u32,
    /// `v2`, `v1` or `none`.
    pub cgroup_version: &'static str,
    /// Every layer, in the order they are printed.
    pub layers: Vec<LayerStatus>,
}

/// One layer and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerStatus {
    pub layer: Layer,
    pub state: LayerState,
    /// What is missing and how to get it; what holds, when nothing is missing.
    pub sentence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerState {
    Available,
    /// There, but it promises less than it could.
    Degraded,
    Unavailable,
}

/// Tries every layer on this machine. Takes a few milliseconds.
pub fn probe() -> Result<Probe, ZygoteError> {
    let zygote = Zygote::start(Options {
        temp_base: None,
        namespaces: true,
        runner: None,
    })?;
    let keeper = zygote.keeper(&everything())?;
    let report = keeper.report.clone();
    drop(keeper);
    zygote.finish().map_err(ZygoteError::Start)?;
    let landlock_abi = landlock::abi();
    let layers = Layer::ALL
        .into_iter()
        .map(|layer| status(layer, &report, landlock_abi))
        .collect();
    Ok(Probe {
        landlock_abi,
        cgroup_version: Cgroups::of_this_process().version(),
        layers,
    })
}

fn everything() -> Profile {
    let is_root = sys::effective_uid() == 0;
    Profile {
        mode: Mode::WorkspaceWrite,
        network: Network::Deny,
        identity: is_root.then_some(Identity {
            uid: NOBODY,
            gid: NOBODY,
            groups: Vec::new(),
        }),
        roots: Vec::new(),
        read_paths: Vec::new(),
        masked: Vec::new(),
        // Something to protect; that it does not exist costs nothing.
        protected: vec!["/nonexistent".into()],
        barred: vec![],
        exec_list: true,
        closed: Vec::new(),
        noexec: NoExec::Everything,
        home: None,
        tmp: None,
        seen: Vec::new(),
        limits: Limits {
            memory_bytes: Some(64 << 20),
            cpu_millicores: Some(1000),
            pids: Some(16),
            file_bytes: None,
            open_files: 64,
        },
        require: Vec::new(),
    }
}

fn status(layer: Layer, report: &KeeperReport, landlock_abi: u32) -> LayerStatus {
    let in_force = |layer: Layer| report.layers.contains(&layer);
    let reason = report
        .missing
        .iter()
        .find(|(missing, _)| *missing == layer)
        .map(|(_, reason)| reason.as_str());
    let (state, sentence) = if !in_force(layer) {
        let reason = reason.unwrap_or("the server is not root, so commands run as its own user");
        (LayerState::Unavailable, format!("{reason}; {}", remedy(layer)))
    } else {
        match layer {
            Layer::Landlock if landlock_abi < 6 => {
                let lost: Vec<&str> = LANDLOCK_PROMISES
                    .iter()
                    .filter(|(needs, _)| *needs > landlock_abi)
                    .map(|(_, promise)| *promise)
                    .collect();
                (
                    LayerState::Degraded,
                    format!(
                        "version {landlock_abi} cannot promise that {}; {}",
                        lost.join(", that "),
                        remedy(layer)
                    ),
                )
            }
            Layer::ExecList if !in_force(Layer::Mountns) => (
                LayerState::Degraded,
                format!(
                    "the loader can run programs from the workspace without a mount namespace; {}",
                    remedy(Layer::Mountns)
                ),
            ),
            Layer::Guardian if !in_force(Layer::Pidns) => (
                LayerState::Degraded,
                format!(
                    "a guardian that is killed itself leaves its tree behind without a pid namespace; {}",
                    remedy(Layer::Pidns)
                ),
            ),
            _ => (LayerState::Available, "works".to_owned()),
        }
    };
    LayerStatus { layer, state, sentence }
}

/// What an operator can do about a missing layer.
fn remedy(layer: Layer) -> &'static str {
    match layer {
        Layer::Session | Layer::Rlimits | Layer::NoNewPrivs | Layer::Guardian => {
            "every Linux kernel we support has it; report this"
        }
        Layer::Cgroup => {
            "run as root, or delegate a cgroup to the server (Delegate=yes in its systemd unit); until then limits hold per process"
        }
        Layer::Uid => "run as root with a `run_as` user, or start the server as a user made for it",
        Layer::Landlock | Layer::ExecList => "use a kernel from 6.12 on with landlock in its `lsm=` list",
        Layer::Seccomp => "use a kernel with CONFIG_SECCOMP_FILTER",
        Layer::Netns | Layer::Mountns | Layer::ProtectedPaths | Layer::Pidns => {
            "allow unprivileged user namespaces (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, the container's seccomp profile) or run as root"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_probed_once_and_in_order() {
        let probe = probe().unwrap();
        assert_eq!(
            probe.layers.iter().map(|status| status.layer).collect::<Vec<_>>(),
            Layer::ALL
        );
        assert!(probe.layers.iter().all(|status| !status.sentence.is_empty()));
    }

    #[test]
    fn missing_layers_come_with_their_reason_and_a_remedy() {
        let report = KeeperReport {
            layers: vec![Layer::Landlock, Layer::ExecList, Layer::Guardian],
            missing: vec![(Layer::Pidns, "making a process failed: not permitted".into())],
            exposed: Vec::new(),
        };
        let pidns = status(Layer::Pidns, &report, 7);
        assert_eq!(pidns.state, LayerState::Unavailable);
        assert!(
            pidns
                .sentence
                .starts_with("making a process failed: not permitted; allow unprivileged")
        );
        assert_eq!(status(Layer::Guardian, &report, 7).state, LayerState::Degraded);
        assert_eq!(status(Layer::ExecList, &report, 7).state, LayerState::Degraded);
        assert_eq!(status(Layer::Landlock, &report, 7).state, LayerState::Available);
        let old = status(Layer::Landlock, &report, 4);
        assert!(
            old.sentence.contains("devices outside") && !old.sentence.contains("tcp"),
            "{}",
            old.sentence
        );
    }
}
