//! `demo`: the product within a minute. A server on a free port of this machine, an agent that asks it for a
//! few things over HTTP, and a person who decides, here or in the console.
//!
//! State, workspace, home and configuration lie in one temporary directory that goes with the demo; nothing
//! of the user's is read or changed. With `--auto` nobody is needed, so that a test can see it through.

mod agent;
mod place;
mod script;
mod telling;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::Board;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::ids::ApprovalId;
use countersign_gateway::session::Caller;
use countersign_gateway::session::login::Logins as _;
use countersign_server::http::{ConformanceFixtures, serve_http};
use countersign_store::Store;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::approvers::Approvers;
use crate::cli::{Demo, DemoAnswer};
use crate::commands::approvals::keys::{Key, SingleKeys, keys};
use crate::commands::serve;
use crate::jobs::Workshop;
use crate::start::{self, Started};
use crate::wiring::{self, Launchpad};
use agent::Agent;
use place::Place;
use script::Step;
use telling::Teller;

/// Between two things that the agent asks for, so that a person can follow.
const PAUSE: Duration = Duration::from_millis(1_500);
/// Between two looks at what waits, where the bell was missed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What became of one thing that the agent asked for.
struct Outcome {
    step: Step,
    result: Value,
    /// The question it led to, with the decision.
    question: Option<ApprovalRequest>,
}

pub(crate) fn run(demo: &Demo) -> anyhow::Result<ExitCode> {
    crate::descriptors::require_least()?;
    // Removed when all else is gone.
    let place = Place::make()?;
    let launchpad = Launchpad::on(place.directories()?)?;
    let started = place.started()?;
    let keyboard = demo.auto.is_none() && !demo.json && std::io::stdin().is_terminal();
    let _single = if keyboard {
        Some(SingleKeys::enter().context("cannot use this terminal")?)
    } else {
        None
    };
    let keys = keyboard.then(keys);
    let ended = start::runtime()?.block_on(play(demo, &place, &started, launchpad, keys));
    ended.map(|()| ExitCode::SUCCESS)
}

async fn play(
    demo: &Demo,
    place: &Place,
    started: &Started,
    launchpad: Launchpad,
    keys: Option<mpsc::UnboundedReceiver<Key>>,
) -> anyhow::Result<()> {
    let interrupted = start::stop_signal()?;
    tokio::pin!(interrupted);
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let joined = started
        .joined(launchpad, Approvers::default(), started.settings.answer_within)
        .await?;
    let (board, record) = (joined.board.clone(), joined.record.clone());
    let code = record.issue(&Caller::person(&wiring::user())).await?;
    let console = format!("http://{address}");
    let teller = Teller::of(demo, keys.is_some());
    teller.welcome(place, &serve::invitation(&console, &code), demo.auto.is_some());
    if demo.open {
        telling::open(&format!("{console}/#token={code}"));
    }
    let (end, ended) = oneshot::channel::<()>();
    let workshop = Workshop::without_agents(started, &joined);
    let options = serve::options(started, joined, &workshop, None, ConformanceFixtures::Absent);
    let serving = serve_http(listener, options, async {
        let _ = ended.await;
    });
    let person = Person {
        board,
        auto: demo.auto,
        keys,
    };
    let acting = async {
        let seen = tokio::select! {
            seen = scenes(place, address, person, &teller) => seen.map(Some),
            () = &mut interrupted => Ok(None),
        };
        let told = match seen {
            Ok(Some(outcomes)) => conclude(&record, &outcomes, &teller).await,
            Ok(None) => {
                teller.farewell();
                Ok(())
            }
            Err(error) => Err(error),
        };
        let _ = end.send(());
        told
    };
    let (served, told) = tokio::join!(serving, acting);
    told?;
    served.context("cannot go on serving")
}

/// The person who watches, or nobody.
struct Person {
    board: Arc<Board>,
    auto: Option<DemoAnswer>,
    keys: Option<mpsc::UnboundedReceiver<Key>>,
}

/// Everything the agent asks for, one after the other.
async fn scenes(
    place: &Place,
    address: SocketAddr,
    mut person: Person,
    teller: &Teller,
) -> anyhow::Result<Vec<Outcome>> {
    let agent = Agent::arrive(address).await?;
    let mut outcomes = Vec::new();
    for (number, step) in script::steps(place, address).into_iter().enumerate() {
        if person.auto.is_none() && number > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        teller.step(number + 1, &step);
        let (result, question) = person.attend(&agent, &step, teller).await?;
        let outcome = Outcome { step, result, question };
        teller.outcome(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

impl Person {
    /// Makes the agent's call, and decides what it leads to.
    async fn attend(
        &mut self,
        agent: &Agent,
        step: &Step,
        teller: &Teller,
    ) -> anyhow::Result<(Value, Option<ApprovalRequest>)> {
        let mut shown: Option<ApprovalId> = None;
        let mut changes = self.board.changes();
        let call = agent.call(step.tool, &step.arguments);
        tokio::pin!(call);
        loop {
            changes.mark_unchanged();
            let open = self.board.list(ApprovalFilter::open()).await?;
            if let Some(question) = open.last().filter(|question| shown.as_ref() != Some(&question.id)) {
                shown = Some(question.id.clone());
                match self.auto {
                    Some(DemoAnswer::Approve) => self.decide(question, Choice::Allow, "approved by `--auto`").await?,
                    Some(DemoAnswer::Deny) => self.decide(question, Choice::Deny, "denied by `--auto`").await?,
                    None => teller.question(question),
                }
            }
            let key = tokio::select! {
                result = &mut call => {
                    let question = match &shown {
                        Some(id) => self.board.find(id).await?,
                        None => None,
                    };
                    return Ok((result?, question));
                }
                key = heard(&mut self.keys) => key,
                _ = changes.changed() => continue,
                () = tokio::time::sleep(LOOK_EVERY) => continue,
            };
            match (key, open.last()) {
                (Key::Text('y'), Some(question)) => {
                    self.decide(question, Choice::Allow, "approved in the demo").await?;
                }
                (Key::Text('n'), Some(question)) => {
                    self.decide(question, Choice::Deny, "denied in the demo").await?;
                }
                (Key::Text('q') | Key::Quit | Key::Escape, _) => anyhow::bail!("left before the end"),
                (Key::Text(_) | Key::Up | Key::Down | Key::Enter | Key::Erase, _) => {}
            }
        }
    }

    async fn decide(&self, question: &ApprovalRequest, choice: Choice, reason: &str) -> anyhow::Result<()> {
        let ballot = Ballot {
            choice,
            by: Decider::person(&wiring::user(), OwnRequests::Refused),
            reason: reason.to_owned(),
            answer: None,
        };
        self.board.decide(&question.id, ballot).await?;
        Ok(())
    }
}

/// The next key; never where nobody types.
async fn heard(keys: &mut Option<mpsc::UnboundedReceiver<Key>>) -> Key {
    match keys {
        Some(keys) => match keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// What the record says of it all, and that it can be proved.
async fn conclude(record: &Arc<Store>, outcomes: &[Outcome], teller: &Teller) -> anyhow::Result<()> {
    use countersign_gateway::audit::reading::Records;
    let proved = Records::prove(&**record).await?;
    teller.conclusion(outcomes, &proved)
}
