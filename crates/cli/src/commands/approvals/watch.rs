//! `approvals watch`: the questions that are open, live, answered with single keys. Where standard output
//! is no terminal, a line for every question that comes and every one that goes.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::ballot::{Ballot, Choice};
use countersign_gateway::approval::question::{Given, Offer};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::ApprovalId;
use countersign_gateway::policy::standing::{ProposedRule, StandingRules as _};

use super::keys::{Key, Raw, keys};
use super::{Office, age, decide, list, show};
use crate::commands::audit::tail::Reader;
use crate::config::Flags;
use crate::start;
use crate::terminal::{self, Page, clean, shortened, wrapped};

/// Said of a question that went away while somebody was at it.
const GONE: &str = "somebody else decided it meanwhile, or it was taken back";
/// How wide the names of facts are.
const NAMES: usize = 11;

/// Between two looks when nobody rang, and for the ages to go on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a question that came into the place of another stands before a key approves it: one that is held, or was on
/// its way already, was meant for the one before.
const LOOK_FIRST: Duration = Duration::from_millis(500);

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    let on_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !terminal::only_adds_lines();
    start::runtime()?.block_on(async {
        let office = Office::open_to_stay(flags)?;
        if on_terminal {
            live(&office).await
        } else {
            lines(&office).await
        }
    })
}

async fn open_questions(office: &Office) -> anyhow::Result<Vec<ApprovalRequest>> {
    Ok(office.board.list(ApprovalFilter::open()).await?)
}

/// One line per event, until nobody reads.
async fn lines(office: &Office) -> anyhow::Result<()> {
    let mut reader = Reader::watch();
    let mut changes = office.board.changes();
    let mut known: BTreeSet<ApprovalId> = BTreeSet::new();
    let stop = start::stop_signal()?;
    tokio::pin!(stop);
    loop {
        changes.mark_unchanged();
        let open = open_questions(office).await?;
        let gone: Vec<ApprovalId> = known
            .iter()
            .filter(|id| !open.iter().any(|approval| approval.id == **id))
            .cloned()
            .collect();
        let mut settled = Vec::new();
        for id in &gone {
            known.remove(id);
            settled.extend(office.board.find(id).await?);
        }
        let new: Vec<_> = open.into_iter().filter(|open| !known.contains(&open.id)).collect();
        {
            let mut page = Page::stdout();
            let now = Clock::system().now();
            for approval in settled.iter().chain(&new) {
                page.row(&list::cells(approval, now), &[8, 9, 5, 8])?;
            }
            page.flush()?;
        }
        known.extend(new.into_iter().map(|approval| approval.id));
        tokio::select! {
            gone = reader.gone_within(LOOK_EVERY) => if gone { return Ok(()) },
            _ = changes.changed() => {}
            () = &mut stop => return Ok(()),
        }
    }
}

/// What is on the screen.
#[derive(Default)]
struct Screen {
    open: Vec<ApprovalRequest>,
    /// By id, so that what comes and goes does not move the choice to another question.
    chosen: Option<ApprovalId>,
    /// The reason that is being typed, and for which question. Letters stay letters until it is finished, also when
    /// the question goes away meanwhile.
    typing: Option<(ApprovalId, String)>,
    /// What the choice came to by itself, when the question before it went away. Nothing is decided there until a
    /// person has chosen it.
    slipped: Option<ApprovalId>,
    /// What was decided here, so that it goes away as expected.
    decided: Option<ApprovalId>,
    /// When the choice came to another question and no key had said so.
    moved_at: Option<Instant>,
    /// Lines about the choice that did not fit when it was drawn last, and whether that was told.
    hidden: usize,
    told_hidden: Option<ApprovalId>,
    /// The rule that would let a question's command go from now on, shown before it is written.
    proposed: Option<(ApprovalId, ProposedRule)>,
    said: String,
}

/// What a key leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wish {
    Nothing,
    Decide(ApprovalId, Choice, String),
    /// Answer a question by one of its options.
    Answer(ApprovalId, String),
    /// Show what would let it go from now on.
    Propose(ApprovalId),
    /// Approve it, and write the rule.
    Always(ApprovalId, ProposedRule),
    Quit,
}

async fn live(office: &Office) -> anyhow::Result<()> {
    let raw = Raw::enter().context("cannot use this terminal")?;
    let mut keys = keys();
    let mut changes = office.board.changes();
    let mut screen = Screen::default();
    let stop = start::stop_signal()?;
    tokio::pin!(stop);
    loop {
        changes.mark_unchanged();
        screen.take(open_questions(office).await?, Instant::now());
        raw.draw(|columns, rows| screen.drawn(columns, rows))?;
        let key = tokio::select! {
            key = keys.recv() => key.unwrap_or(Key::Quit),
            _ = changes.changed() => continue,
            () = tokio::time::sleep(LOOK_EVERY) => continue,
            () = &mut stop => return Ok(()),
        };
        match screen.press(key, Instant::now()) {
            Wish::Nothing => {}
            Wish::Quit => return Ok(()),
            Wish::Decide(id, choice, reason) => screen.decide(office, id, office.ballot(choice, &reason, None)).await,
            Wish::Answer(id, option) => {
                let ballot = office.ballot(Choice::Allow, "answered on the terminal", Some(Given::Option(option)));
                screen.decide(office, id, ballot).await;
            }
            Wish::Propose(id) => screen.propose(office, id),
            Wish::Always(id, rule) => {
                screen.decided = Some(id.clone());
                screen.said = allow_from_now_on(office, &id, rule).await;
            }
        }
    }
}

/// Approves, then writes the rule; what came of it, in a sentence.
async fn allow_from_now_on(office: &Office, id: &ApprovalId, rule: ProposedRule) -> String {
    let ballot = office.ballot(Choice::Allow, "approved on the terminal, from now on", None);
    let decided = match office.board.decide(id, ballot).await {
        Ok(decided) => decided,
        Err(error) => return error.to_string(),
    };
    let said = decide::sentence(&decided);
    if decided.approval().decision() != Some(Choice::Allow) {
        return said;
    }
    let file = rule.file.clone();
    match office.adopt(rule).await {
        Ok(()) => format!("{said}; from now on it runs unasked, by a rule in {file}"),
        Err(refusal) => format!("{said}; no rule was written: {}", refusal.message),
    }
}

impl Screen {
    async fn decide(&mut self, office: &Office, id: ApprovalId, ballot: Ballot) {
        self.decided = Some(id.clone());
        self.said = match office.board.decide(&id, ballot).await {
            Ok(decided) => decide::sentence(&decided),
            Err(error) => error.to_string(),
        };
    }

    /// What the chosen question offers; none where it is about an act.
    fn offer(&self) -> Option<Offer> {
        Offer::of(self.open.get(self.place()?)?)
    }

    fn propose(&mut self, office: &Office, id: ApprovalId) {
        let Some(question) = self.open.iter().find(|approval| approval.id == id) else {
            return;
        };
        match office.rules.propose(question) {
            Ok(rule) => self.proposed = Some((id, rule)),
            Err(refusal) => self.said = refusal.message,
        }
    }

    fn take(&mut self, open: Vec<ApprovalRequest>, now: Instant) {
        let before = self.place();
        self.open = open;
        let is_there = |id: &ApprovalId| self.open.iter().any(|approval| approval.id == *id);
        if !self.chosen.as_ref().is_some_and(is_there) {
            let next = before.unwrap_or(0).min(self.open.len().saturating_sub(1));
            let next = self.open.get(next).map(|approval| approval.id.clone());
            let gone = std::mem::replace(&mut self.chosen, next);
            self.moved_at = Some(now);
            if gone.is_some() && gone != self.decided {
                self.slipped.clone_from(&self.chosen);
            }
        }
        let proposed = self.proposed.as_ref().map(|(id, _)| id);
        if proposed.is_some_and(|id| !is_there(id)) {
            self.proposed = None;
            self.said = GONE.to_owned();
        }
    }

    /// Why a key does not decide here yet.
    fn hesitates(&mut self, id: &ApprovalId, now: Instant) -> Option<String> {
        if self.slipped.as_ref() == Some(id) {
            return Some("the question that you were at is gone; press enter to take this one".to_owned());
        }
        if self
            .moved_at
            .is_some_and(|moved| now.duration_since(moved) < LOOK_FIRST)
        {
            return Some("this is another question than before; look at it, and press the key again".to_owned());
        }
        if self.hidden > 0 && self.told_hidden.replace(id.clone()).as_ref() != Some(id) {
            let short = id.as_str().get(..8).unwrap_or(id.as_str());
            return Some(format!(
                "not all of it fits: `countersign approvals show {short}` has it; the same key again goes on without"
            ));
        }
        None
    }

    fn place(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.open.iter().position(|approval| approval.id == *chosen)
    }

    fn choose(&mut self, place: usize) {
        if let Some(approval) = self.open.get(place) {
            self.chosen = Some(approval.id.clone());
            self.slipped = None;
            self.moved_at = None;
        }
    }

    fn press(&mut self, key: Key, now: Instant) -> Wish {
        if key == Key::Quit {
            return Wish::Quit;
        }
        if let Some((id, mut reason)) = self.typing.take() {
            let is_open = self.open.iter().any(|approval| approval.id == id);
            match key {
                Key::Enter | Key::Escape if !is_open => {
                    self.said = GONE.to_owned();
                    return Wish::Nothing;
                }
                Key::Enter if reason.trim().is_empty() => {
                    self.said = "a reason is needed; the agent is told".to_owned()
                }
                Key::Enter => return Wish::Decide(id, Choice::Deny, reason),
                Key::Escape => {
                    self.said = "not denied".to_owned();
                    return Wish::Nothing;
                }
                Key::Erase => drop(reason.pop()),
                Key::Text(c) => reason.push(c),
                Key::Up | Key::Down | Key::Quit => {}
            }
            self.typing = Some((id, reason));
            return Wish::Nothing;
        }
        if let Some((id, rule)) = self.proposed.take() {
            if key == Key::Text('y') {
                return Wish::Always(id, rule);
            }
            self.said = "not allowed from now on; the question is still open".to_owned();
            return Wish::Nothing;
        }
        self.said.clear();
        let place = self.place().unwrap_or(0);
        match (key, self.chosen.clone(), self.offer()) {
            (Key::Text('q') | Key::Escape, _, _) => return Wish::Quit,
            (Key::Up | Key::Text('k'), _, _) => self.choose(place.saturating_sub(1)),
            (Key::Down | Key::Text('j'), _, _) => self.choose(place + 1),
            (Key::Enter, _, _) => self.slipped = None,
            (Key::Text('a' | 'A'), Some(_), Some(offer)) => self.said = choices(&offer),
            (Key::Text(digit @ '1'..='9'), Some(id), Some(offer)) => {
                let option = offer.options().get(digit as usize - '1' as usize);
                match (option, self.hesitates(&id, now)) {
                    (None, _) => self.said = choices(&offer),
                    (Some(_), Some(why)) => self.said = why,
                    (Some(option), None) => return Wish::Answer(id, option.clone()),
                }
            }
            (Key::Text('a' | 'A'), Some(id), None) => match self.hesitates(&id, now) {
                Some(why) => self.said = why,
                None if key == Key::Text('A') => return Wish::Propose(id),
                None => return Wish::Decide(id, Choice::Allow, "approved on the terminal".to_owned()),
            },
            (Key::Text('d'), Some(id), _) => self.typing = Some((id, String::new())),
            (Key::Text(_) | Key::Erase | Key::Quit, _, _) => {}
        }
        Wish::Nothing
    }

    /// The screen as lines, none wider than it. What is asked about is shown whole, line below line; the list gets
    /// the room that this leaves.
    fn drawn(&mut self, columns: usize, rows: usize) -> Vec<String> {
        let now = Clock::system().now();
        let place = self.place().unwrap_or(0);
        let width = columns.saturating_sub(1);
        let about: Vec<String> = match (&self.proposed, self.open.get(place)) {
            (Some((_, rule)), _) => {
                let lines = rule.yaml.lines().map(|line| format!("  {line}"));
                let lines = [format!("to be written into {}:", rule.file)].into_iter().chain(lines);
                lines.flat_map(|line| wrapped(&clean(&line), width)).collect()
            }
            (None, Some(chosen)) => {
                let facts = show::facts(chosen, now);
                facts.iter().flat_map(|fact| fact.drawn(NAMES, width)).collect()
            }
            (None, None) => Vec::new(),
        };
        // A heading above, what keys do below, and a blank line beside each.
        let room = rows.saturating_sub(4);
        let listed = room.saturating_sub(about.len() + 1).max(room.div_ceil(4)).max(1);
        let from = place.saturating_sub(listed.saturating_sub(1));
        let mut drawn = vec![match self.open.len() {
            0 => "nothing waits for a decision".to_owned(),
            1 => "1 question waits".to_owned(),
            count => format!("{count} questions wait"),
        }];
        drawn.push(String::new());
        for (index, approval) in self.open.iter().enumerate().skip(from).take(listed) {
            let mark = if index == place { '>' } else { ' ' };
            let line = format!(
                "{mark} {}  {:>6}  {}  {}",
                super::short(approval),
                age(approval.created_at, now),
                approval.requested_by,
                super::act(approval)
            );
            drawn.push(shortened(&clean(&line), width));
        }
        if !about.is_empty() {
            drawn.push(String::new());
        }
        let fits = rows.saturating_sub(2 + drawn.len());
        self.hidden = about.len().saturating_sub(fits);
        if self.hidden > 0 {
            let shown = fits.saturating_sub(1);
            drawn.extend(about.iter().take(shown).cloned());
            let more = format!("… {} more lines", about.len() - shown);
            drawn.push(shortened(&more, width));
        } else {
            drawn.extend(about);
        }
        drawn.truncate(rows.saturating_sub(2));
        drawn.push(String::new());
        drawn.push(shortened(&clean(&self.prompt()), width));
        drawn
    }

    /// What was said last, or what keys do now.
    fn prompt(&self) -> String {
        match (&self.typing, self.said.as_str()) {
            _ if self.proposed.is_some() => "approve it and allow it from now on? y yes   any other key no".to_owned(),
            (Some((id, _)), _) if !self.open.iter().any(|approval| approval.id == *id) => {
                format!("{GONE}; enter or esc to go on")
            }
            (Some((_, reason)), _) => format!("deny because: {reason}_   (enter to deny, esc to leave it)"),
            (None, "") => match self.offer() {
                Some(offer) => format!("{}   d deny   j/k choose   q quit", choices(&offer)),
                None => "a approve   A always   d deny   j/k choose   q quit".to_owned(),
            },
            (None, said) => said.to_owned(),
        }
    }
}

/// The keys that answer a question.
fn choices(offer: &Offer) -> String {
    format!("1-{} answer by that option", offer.options().len())
}

#[cfg(test)]
mod tests;
