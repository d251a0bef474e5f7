//! An agent that plays a script, and goes on, or not, when whoever started it vanishes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use countersign_gateway::audit::Pending;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentDriver, AgentEvent, AgentEventKind, AgentQuestion, Conversation, DriverError, EventSink, Hearing,
    Input, Item, ItemKind, ItemPhase, Probed, ProcessMark, QuestionAbout, Resume, Start, TurnEnd, Usage, Words,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Say(&'static str),
    /// Asks to run a command, and waits for the answer.
    Ask(&'static str, &'static str),
    /// Acts as if it had not heard the answer to this question.
    Forget(&'static str),
    /// Asks and takes the question back at once.
    AskInVain(&'static str),
    Patch(&'static str),
    Failed(&'static str),
    Use(u64),
    /// Its process ends by a signal.
    Crash,
    /// The turn fails, for now.
    Fail {
        retryable: bool,
    },
    /// It may not go on before then.
    Limit(i64),
    /// Ends the turn, and tells of that only when something was said to it meanwhile, which is the next turn.
    EndLate,
    /// Says nothing until it is stopped.
    Hang,
}

/// Everything about the agent that outlives its supervisor.
pub(crate) struct World {
    pub(crate) script: Vec<Step>,
    pub(crate) position: usize,
    /// Whether its process goes on when its supervisor vanishes.
    pub(crate) survives: bool,
    /// Whether `interrupt` does anything.
    pub(crate) heeds: bool,
    /// When it hears a further message.
    pub(crate) hearing: Hearing,
    pub(crate) alive: Option<ProcessMark>,
    pub(crate) spawned: u32,
    /// Conversations that were begun.
    conversations: u32,
    pub(crate) answers: BTreeMap<String, AgentAnswer>,
    /// What was said to it, first words included.
    pub(crate) said: Vec<String>,
    /// Whether it was told to end a turn, which it may not heed.
    pub(crate) told_to_end: bool,
    interrupted: bool,
    turn_over: bool,
    /// Conversations at work at this moment, and the most there ever were.
    pub(crate) at_work: usize,
    pub(crate) at_work_max: usize,
}

pub(crate) struct Fake {
    pub(crate) world: Mutex<World>,
    changed: Notify,
}

impl Fake {
    pub(crate) fn playing(script: &[Step]) -> Arc<Self> {
        Arc::new(Self {
            world: Mutex::new(World {
                script: script.to_vec(),
                position: 0,
                survives: true,
                heeds: true,
                hearing: Hearing::Always,
                alive: None,
                spawned: 0,
                conversations: 0,
                answers: BTreeMap::new(),
                said: Vec::new(),
                told_to_end: false,
                interrupted: false,
                turn_over: false,
                at_work: 0,
                at_work_max: 0,
            }),
            changed: Notify::new(),
        })
    }

    /// The supervisor's process was killed.
    pub(crate) fn supervisor_died(&self) {
        let mut world = self.world.lock().unwrap();
        world.at_work = 0;
        if !world.survives {
            world.alive = None;
        }
    }

    pub(crate) fn answered(&self, question: &str) -> Option<AgentAnswer> {
        self.world.lock().unwrap().answers.get(question).cloned()
    }

    fn spawn(&self) -> ProcessMark {
        let mut world = self.world.lock().unwrap();
        assert!(world.alive.is_none(), "two agents write to one conversation");
        world.spawned += 1;
        let mark = ProcessMark {
            pid: 100 + world.spawned,
            started: 7,
            socket: None,
        };
        world.alive = Some(mark.clone());
        mark
    }

    /// What comes next in the script, if anything does; none where the turn was interrupted.
    fn next_step(&self) -> Option<Option<Step>> {
        let mut world = self.world.lock().unwrap();
        if std::mem::take(&mut world.interrupted) {
            world.turn_over = true;
            return None;
        }
        let step = world.script.get(world.position).cloned();
        if !matches!(step, Some(Step::Ask(..) | Step::Patch(_) | Step::Hang) | None) {
            world.position += 1;
        }
        Some(step)
    }

    /// Says what there is to say, from where it stands.
    async fn play(self: Arc<Self>, events: EventSink) {
        let voice = Voice(events);
        {
            let mut world = self.world.lock().unwrap();
            world.at_work += 1;
            world.at_work_max = world.at_work_max.max(world.at_work);
        }
        loop {
            let Some(step) = self.next_step() else {
                voice.tell(AgentEventKind::TurnEnded(TurnEnd::Interrupted)).await;
                break;
            };
            let heard = match step {
                None => {
                    self.world.lock().unwrap().turn_over = true;
                    let result = Some("done".to_owned());
                    voice
                        .tell(AgentEventKind::TurnEnded(TurnEnd::Completed { result }))
                        .await;
                    break;
                }
                Some(Step::Say(text)) => voice.tell(AgentEventKind::Message(text.to_owned())).await,
                Some(Step::Failed(command)) => {
                    let item = Item {
                        id: "i".to_owned(),
                        kind: ItemKind::Command,
                        phase: ItemPhase::Failed,
                        title: command.to_owned(),
                        detail: Value::Null,
                    };
                    voice.tell(AgentEventKind::Item(item)).await
                }
                Some(Step::Use(tokens)) => {
                    let usage = Usage {
                        model: Some("m".to_owned()),
                        prompt_tokens: tokens,
                        completion_tokens: 0,
                        total_tokens: tokens,
                        cost_usd: None,
                    };
                    voice.tell(AgentEventKind::Usage(usage)).await
                }
                Some(Step::Ask(id, command)) => {
                    let about = QuestionAbout::Command {
                        command: command.to_owned(),
                        cwd: None,
                    };
                    self.ask(&voice, id, about).await
                }
                Some(Step::Patch(id)) => {
                    let change = countersign_gateway::job::driver::FileChange {
                        path: "src/a.rs".to_owned(),
                        kind: countersign_gateway::job::driver::FileChangeKind::Modify,
                        diff: Some("x".repeat(600)),
                    };
                    let about = QuestionAbout::Patch {
                        changes: vec![change],
                        grant_root: false,
                    };
                    self.ask(&voice, id, about).await
                }
                Some(Step::Forget(id)) => {
                    self.world.lock().unwrap().answers.remove(id);
                    true
                }
                Some(Step::AskInVain(id)) => {
                    let about = QuestionAbout::Command {
                        command: "ls".to_owned(),
                        cwd: None,
                    };
                    voice.tell(question(id, about)).await;
                    voice.tell(AgentEventKind::ApprovalWithdrawn(id.to_owned())).await
                }
                Some(Step::Crash) => {
                    self.world.lock().unwrap().alive = None;
                    voice
                        .tell(AgentEventKind::Exited {
                            status: None,
                            signal: Some(9),
                        })
                        .await;
                    break;
                }
                Some(Step::Fail { retryable }) => {
                    let message = "the model is away".to_owned();
                    voice
                        .tell(AgentEventKind::TurnEnded(TurnEnd::Failed { message, retryable }))
                        .await;
                    break;
                }
                Some(Step::Limit(until)) => {
                    let resets_at = Some(Timestamp::from_millis(until));
                    let message = "too much".to_owned();
                    voice.tell(AgentEventKind::LimitReached { resets_at, message }).await
                }
                Some(Step::EndLate) => {
                    self.world.lock().unwrap().turn_over = true;
                    while self.world.lock().unwrap().turn_over {
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                    let result = Some("too early".to_owned());
                    voice
                        .tell(AgentEventKind::TurnEnded(TurnEnd::Completed { result }))
                        .await;
                    break;
                }
                Some(Step::Hang) => {
                    self.changed.notified().await;
                    true
                }
            };
            if !heard {
                break;
            }
        }
        let mut world = self.world.lock().unwrap();
        world.at_work = world.at_work.saturating_sub(1);
    }

    async fn ask(&self, voice: &Voice, id: &str, about: QuestionAbout) -> bool {
        if self.answered(id).is_none() && !voice.tell(question(id, about)).await {
            return false;
        }
        loop {
            let changed = self.changed.notified();
            {
                let mut world = self.world.lock().unwrap();
                if world.interrupted {
                    return true;
                }
                if world.answers.contains_key(id) {
                    world.position += 1;
                    return true;
                }
            }
            changed.await;
        }
    }

    /// The process of the last turn goes, and another comes.
    async fn begin_anew(&self, events: &EventSink) {
        self.world.lock().unwrap().alive = None;
        let (status, signal) = (Some(0), None);
        for kind in [
            AgentEventKind::Exited { status, signal },
            AgentEventKind::Spawned(self.spawn()),
        ] {
            let _ = events.send(AgentEvent { kind, raw: Value::Null }).await;
        }
    }

    async fn open(
        self: Arc<Self>,
        id: String,
        events: EventSink,
        process: Option<ProcessMark>,
        words: Option<Vec<Input>>,
    ) -> Result<Arc<dyn Conversation>, DriverError> {
        let gone = |_| DriverError::Process("nobody listens".to_owned());
        let tell = |kind| events.send(AgentEvent { kind, raw: Value::Null });
        if let Some(mark) = process {
            tell(AgentEventKind::Spawned(mark)).await.map_err(gone)?;
        }
        if let Some(words) = words {
            let mut world = self.world.lock().unwrap();
            world.said.extend(words.iter().map(text));
            world.turn_over = false;
        }
        let started = AgentEventKind::Started {
            conversation_id: id,
            rollout: Some("/rollout".into()),
            model: Some("m".to_owned()),
        };
        tell(started).await.map_err(gone)?;
        tokio::spawn(self.clone().play(events.clone()));
        Ok(Arc::new(Talk { fake: self, events }))
    }
}

struct Voice(EventSink);

impl Voice {
    async fn tell(&self, kind: AgentEventKind) -> bool {
        let raw = json!({"said": true});
        self.0.send(AgentEvent { kind, raw }).await.is_ok()
    }
}

fn question(id: &str, about: QuestionAbout) -> AgentEventKind {
    AgentEventKind::ApprovalRequested(AgentQuestion {
        id: id.to_owned(),
        about,
        reason: None,
        wants_more: false,
    })
}

fn text(part: &Input) -> String {
    match part {
        Input::Text(text) => text.clone(),
        Input::Image { url } => url.clone(),
    }
}

pub(crate) struct Driver(pub(crate) Arc<Fake>);

impl AgentDriver for Driver {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn hearing(&self) -> Hearing {
        self.0.world.lock().unwrap().hearing
    }

    fn probe(&self) -> Pending<Result<Probed, DriverError>> {
        let probed = Probed {
            version: "1".to_owned(),
            asks: true,
            resumes: true,
            known: true,
        };
        Box::pin(async move { Ok(probed) })
    }

    fn start(&self, start: Start, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let fake = self.0.clone();
        Box::pin(async move {
            let mark = fake.spawn();
            let id = {
                let mut world = fake.world.lock().unwrap();
                world.conversations += 1;
                format!("th-{}", world.conversations)
            };
            fake.open(id, events, Some(mark), Some(start.prompt)).await
        })
    }

    fn resume(&self, resume: Resume, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let fake = self.0.clone();
        Box::pin(async move {
            let lives = fake.world.lock().unwrap().alive.clone();
            let mark = if lives.is_some() { None } else { Some(fake.spawn()) };
            let words = match (resume.words, &mark) {
                (Words::Next(words), _) | (Words::IfCutOff(words), Some(_)) => Some(words),
                (Words::IfCutOff(_), None) => None,
            };
            fake.open(resume.conversation_id, events, mark, words).await
        })
    }

    fn reap(&self, _job_id: String, _process: Option<ProcessMark>) -> Pending<()> {
        let fake = self.0.clone();
        Box::pin(async move { fake.world.lock().unwrap().alive = None })
    }
}

struct Talk {
    fake: Arc<Fake>,
    events: EventSink,
}

impl Conversation for Talk {
    fn send(&self, message: Vec<Input>) -> Pending<Result<(), DriverError>> {
        let (fake, events) = (self.fake.clone(), self.events.clone());
        Box::pin(async move {
            let is_early = {
                let world = fake.world.lock().unwrap();
                world.hearing != Hearing::Always && !world.turn_over
            };
            if is_early {
                return Err(DriverError::Unsupported("not now".to_owned()));
            }
            if fake.world.lock().unwrap().hearing == Hearing::ByAnotherProcess {
                fake.begin_anew(&events).await;
            }
            let next_turn = {
                let mut world = fake.world.lock().unwrap();
                world.said.extend(message.iter().map(text));
                std::mem::take(&mut world.turn_over)
            };
            if next_turn {
                tokio::spawn(fake.play(events));
            }
            Ok(())
        })
    }

    fn is_busy(&self) -> bool {
        !self.fake.world.lock().unwrap().turn_over
    }

    fn answer(&self, question: &str, answer: AgentAnswer) -> Pending<Result<(), DriverError>> {
        let (fake, question) = (self.fake.clone(), question.to_owned());
        Box::pin(async move {
            fake.world.lock().unwrap().answers.entry(question).or_insert(answer);
            fake.changed.notify_waiters();
            Ok(())
        })
    }

    fn interrupt(&self) -> Pending<Result<(), DriverError>> {
        let fake = self.fake.clone();
        Box::pin(async move {
            let mut world = fake.world.lock().unwrap();
            world.told_to_end = true;
            if world.heeds {
                world.interrupted = true;
                fake.changed.notify_waiters();
            }
            Ok(())
        })
    }

    fn stop(&self) -> Pending<()> {
        let fake = self.fake.clone();
        Box::pin(async move { fake.world.lock().unwrap().alive = None })
    }
}
