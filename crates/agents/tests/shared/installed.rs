//! The agents as they are installed, and what leads each of them to a model server of ours.

use std::path::{Path, PathBuf};

use super::fakes::Server;

/// Where the agents are installed.
pub(crate) fn place() -> PathBuf {
    let given = std::env::var_os("COUNTERSIGN_AGENTS").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/agents"))
}

/// The program of an agent.
pub(crate) fn program(agent: &str) -> PathBuf {
    place().join("bin").join(agent)
}

/// Whether an agent is installed. If not, and it must be, the test fails.
pub(crate) fn have(agent: &str) -> bool {
    if program(agent).exists() && place().join("stamp").exists() {
        return true;
    }
    let is_required = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    assert!(
        !is_required("COUNTERSIGN_REQUIRE_AGENTS", "1") && !is_required("CI", "true"),
        "`{agent}` is not installed; run tests/agents/setup"
    );
    eprintln!("skipped: `{agent}` is not installed; run tests/agents/setup");
    false
}

/// The `config.toml` that leads Codex to our model.
pub(crate) fn codex_configuration(model: &Server) -> String {
    format!(
        "model = \"fake-model\"\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n\
         base_url = \"http://{}/v1\"\nwire_api = \"responses\"\nrequest_max_retries = 0\nstream_max_retries = 0\n",
        model.address
    )
}

/// The environment that leads Claude Code to our model.
pub(crate) fn claude_environment(model: &Server, home: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("ANTHROPIC_BASE_URL", format!("http://{}", model.address)),
        ("ANTHROPIC_API_KEY", "sk-fake".to_owned()),
        ("CLAUDE_CONFIG_DIR", home.display().to_string()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("CLAUDE_CODE_MAX_RETRIES", "0".to_owned()),
    ]
}

/// The environment of the adapter through which Codex speaks the Agent Client Protocol.
pub(crate) fn codex_acp_environment(home: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("CODEX_HOME", home.display().to_string()),
        ("CODEX_PATH", program("codex").display().to_string()),
        ("OPENAI_API_KEY", "sk-fake".to_owned()),
    ]
}

/// The environment that leads opencode to our model, which speaks as Anthropic's does.
pub(crate) fn opencode_environment(model: &Server, home: &Path) -> Vec<(&'static str, String)> {
    let model = serde_json::json!({
        "autoupdate": false, "share": "disabled", "model": "fake/fake-model", "small_model": "fake/fake-model",
        "enabled_providers": ["fake"],
        "provider": {"fake": {"npm": "@ai-sdk/anthropic", "name": "Fake",
            "options": {"baseURL": format!("http://{}/v1", model.address), "apiKey": "sk-fake"},
            "models": {"fake-model": {"name": "Fake", "tool_call": true, "limit": {"context": 200_000, "output": 8_000}}}}},
    });
    vec![
        ("OPENCODE_CONFIG_CONTENT", model.to_string()),
        ("OPENCODE_TEST_HOME", home.display().to_string()),
        ("XDG_DATA_HOME", home.join("data").display().to_string()),
        ("XDG_CONFIG_HOME", home.join("config").display().to_string()),
        ("XDG_CACHE_HOME", home.join("cache").display().to_string()),
        ("XDG_STATE_HOME", home.join("state").display().to_string()),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1".to_owned()),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
    ]
}
