//! Places that no command may read: ours, and those in which people keep credentials.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::approvers::HttpApproverSettings;
use super::merge::Effective;
use super::secret::Secret;
use super::surroundings::Surroundings;

/// Among them what agents themselves log in with, which a job's agent needs.
#[rustfmt::skip]
pub(crate) const AGENTS_OWN: [&str; 7] = [
    ".claude", ".claude.json", ".codex", ".config/anthropic", ".gemini", ".local/share/opencode", ".config/github-copilot",
];

/// Under the user's home: what lets its reader act as the user somewhere else.
pub(super) const CREDENTIALS_UNDER_HOME: &[&str] = &[
    // What is another server's, of this user or for those of other homes
    ".local/state/countersign",
    ".config/countersign",
    // Keys and passwords
    ".ssh",
    ".gnupg",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".pki",
    ".netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".config/sops",
    ".config/age",
    ".config/op",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/1Password",
    ".vault-token",
    // Clouds and clusters
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/doctl",
    ".oci",
    ".kube",
    ".docker",
    ".config/containers/auth.json",
    ".config/helm",
    ".config/rclone",
    ".config/heroku",
    ".config/ngrok",
    ".s3cfg",
    ".boto",
    ".fly",
    ".databrickscfg",
    ".snowflake",
    ".pulumi/credentials.json",
    ".cloudflared",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    // Code hosts and package registries
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pip/pip.conf",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet/NuGet.Config",
    ".composer/auth.json",
    ".config/composer/auth.json",
    // Databases
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    // Mail, shares and displays
    ".msmtprc",
    ".smbcredentials",
    ".Xauthority",
    // Agents and browsers, which keep sessions
    AGENTS_OWN[0],
    AGENTS_OWN[1],
    AGENTS_OWN[2],
    AGENTS_OWN[3],
    AGENTS_OWN[4],
    AGENTS_OWN[5],
    AGENTS_OWN[6],
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".thunderbird",
];

/// The files that hold secrets of ours. A command that read one could answer its own questions.
pub(super) fn secret_files(effective: &Effective, approvers: &[HttpApproverSettings]) -> Vec<PathBuf> {
    let keys = effective.iter().filter_map(|(_, held)| Secret::of(&held.value));
    let headers = approvers
        .iter()
        .flat_map(|it| &it.headers)
        .map(|(_, secret)| secret.clone());
    let file = |secret: Secret| match secret {
        Secret::File(path) => Some(path),
        Secret::Value(_) | Secret::Variable(_) => None,
    };
    keys.chain(headers).filter_map(file).collect()
}

/// All hidden places: the state directory and that which would be used otherwise, the configuration in use, credentials under our home and under those of
/// whoever commands may run as.
pub(super) fn places(state_dir: &Path, configuration: &[PathBuf], surroundings: &Surroundings) -> Vec<PathBuf> {
    let homes = surroundings.home.iter().chain(&surroundings.other_homes);
    let credentials = homes.flat_map(|home| CREDENTIALS_UNDER_HOME.iter().map(|name| home.join(name)));
    let mut seen = BTreeSet::new();
    std::iter::once(state_dir.to_owned())
        .chain(surroundings.default_state_dir())
        .chain(configuration.iter().cloned())
        .chain(credentials)
        .filter(|place| seen.insert(place.clone()))
        .collect()
}
