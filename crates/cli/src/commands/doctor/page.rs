//! The findings as a person reads them: one section each, the advice below what it is about.

use countersign_exec::probe::{LANDLOCK_PROMISES, LayerState};

use super::findings::{Findings, word};
use crate::terminal::{Cell, Page, Tone};

pub(super) fn print(page: &mut Page, found: &Findings) -> anyhow::Result<()> {
    page.line(format_args!("countersign {}", env!("CARGO_PKG_VERSION")))?;
    configuration(page, found)?;
    places(page, found)?;
    layers(page, found)?;
    landlock(page, found)?;
    page.line("")?;
    let obstacles = found.obstacles();
    if obstacles.is_empty() {
        let ready = page.paint(Tone::Good, "ready");
        return page.line(format_args!("{ready}: every layer that policy requires is there"));
    }
    let not_ready = page.paint(Tone::Bad, "not ready");
    obstacles
        .iter()
        .try_for_each(|obstacle| page.line(format_args!("{not_ready}: {obstacle}")))
}

fn configuration(page: &mut Page, found: &Findings) -> anyhow::Result<()> {
    heading(page, "configuration")?;
    for source in &found.sources {
        page.line(format_args!("  {source}"))?;
    }
    if !found.sources.iter().any(|source| source.contains("file ")) {
        page.line("  no file; `countersign config init` writes one with every key")?;
    }
    for warning in &found.warnings {
        page.line(format_args!("  {}: {warning}", page.paint(Tone::Caution, "warning")))?;
    }
    Ok(())
}

fn places(page: &mut Page, found: &Findings) -> anyhow::Result<()> {
    heading(page, "places")?;
    let state = &found.state;
    let about = match state.mode {
        Some(mode) => format!("mode {mode:04o}"),
        None => "not there yet; made at the first start".to_owned(),
    };
    page.line(format_args!("  state directory  {} ({about})", state.path.display()))?;
    advice(page, state.advice.as_deref())?;
    if let Some(database) = &found.database {
        page.line(format_args!("  database         {}", database.address))?;
        advice(page, database.advice.as_deref())?;
    }
    let workspace = &found.workspace;
    let owner = workspace
        .owner
        .map_or_else(String::new, |uid| format!(" (owned by uid {uid})"));
    let path = workspace.path.display();
    match workspace.is_set {
        true => page.line(format_args!("  workspace        {path}{owner}"))?,
        false => page.line(format_args!(
            "  workspace        none; calls work in the directory that they name, without one in {path}{owner}"
        ))?,
    }
    page.line(format_args!("  commands run as  {}", workspace.runs_as))?;
    advice(page, workspace.advice.as_deref())
}

fn layers(page: &mut Page, found: &Findings) -> anyhow::Result<()> {
    heading(page, "layers of confinement")?;
    if let Some(reason) = &found.untried {
        page.line(format_args!(
            "  {}: {reason}",
            page.paint(Tone::Bad, "they could not be tried")
        ))?;
    }
    let row = |layer: &super::findings::Layer| {
        let tone = match layer.state {
            LayerState::Available => Tone::Good,
            LayerState::Degraded => Tone::Caution,
            LayerState::Unavailable if layer.required => Tone::Bad,
            LayerState::Unavailable => Tone::Caution,
        };
        vec![
            Cell::plain(""),
            Cell::plain(layer.name),
            Cell::new(tone, word(layer.state)),
            Cell::new(Tone::Quiet, if layer.required { "required" } else { "" }),
            Cell::plain(&layer.sentence),
        ]
    };
    page.table(&found.layers.iter().map(row).collect::<Vec<_>>())?;
    page.line(format_args!("  control groups: {}", found.cgroups))
}

fn landlock(page: &mut Page, found: &Findings) -> anyhow::Result<()> {
    heading(page, &format!("landlock, version {}", found.landlock_abi))?;
    let rows: Vec<_> = LANDLOCK_PROMISES
        .iter()
        .map(|(needs, promise)| {
            let (tone, holds) = if found.landlock_abi >= *needs {
                (Tone::Good, "holds")
            } else {
                (Tone::Caution, "lacking")
            };
            vec![
                Cell::plain(""),
                Cell::new(tone, holds),
                Cell::plain(format!("from {needs} on")),
                Cell::plain(promise),
            ]
        })
        .collect();
    page.table(&rows)
}

fn heading(page: &mut Page, text: &str) -> anyhow::Result<()> {
    page.line("")?;
    let text = page.paint(Tone::Strong, text);
    page.line(text)
}

fn advice(page: &mut Page, advice: Option<&str>) -> anyhow::Result<()> {
    match advice {
        Some(advice) => page.line(format_args!("    {}: {advice}", page.paint(Tone::Caution, "note"))),
        None => Ok(()),
    }
}
