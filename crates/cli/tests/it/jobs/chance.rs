//! Kills at random moments, from a seed that is printed: `COUNTERSIGN_SEED` repeats one run,
//! `COUNTERSIGN_ROUNDS` makes many.

use std::time::{Duration, Instant, SystemTime};

use super::stage::{Player, Stage, kill};
use crate::client::eventually;
use crate::crash::Dice;

/// Longer than any of these jobs takes, and short of a hung one.
const ENOUGH: Duration = Duration::from_secs(120);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn kills_at_random_moments_end_every_job_once_and_leave_nothing() {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let first = number("COUNTERSIGN_SEED").unwrap_or(clock.as_millis() as u64);
    for round in 0..number("COUNTERSIGN_ROUNDS").unwrap_or(2) {
        let seed = first + round;
        println!("COUNTERSIGN_SEED={seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        dice.roll(2);
        play(&mut dice);
    }
}

/// One job, and up to three kills while it lasts.
fn play(dice: &mut Dice) {
    let player = [
        Player::CodexAppServer,
        Player::CodexAppServer,
        Player::CodexExec,
        Player::Claude,
    ][dice.roll(4) as usize];
    let prompt = [
        "[[slow 15]]",
        "[[shell sleep 2; touch done]]",
        "[[shell! sleep 1]]",
        "[[say hello]]",
    ][dice.roll(4) as usize];
    let more = match player {
        Player::CodexExec => "approval_policy: {mode: never}\n",
        Player::CodexAppServer | Player::Claude | Player::Acp | Player::Opencode => "",
    };
    println!("{player:?} {prompt}");
    let Some(mut stage) = Stage::set_with(player, more) else {
        return;
    };
    let job = stage.start(prompt);
    for _ in 0..=dice.roll(3) {
        pass(&stage, Duration::from_millis(dice.roll(2_500)), dice.roll(2) == 0);
        match dice.roll(4) {
            0 => kill_agent(&stage),
            1 => {
                println!("  server");
                stage.kill_server();
                pass(&stage, Duration::from_millis(dice.roll(500)), dice.roll(2) == 0);
                stage.serve();
            }
            2 => {
                println!("  server");
                stage.kill_server();
                kill_agent(&stage);
                stage.serve();
            }
            _ => {
                println!("  two servers in a row");
                stage.kill_server();
                stage.serve();
                stage.kill_server();
                stage.serve();
            }
        }
    }
    // Whatever is asked from now on is allowed.
    let deadline = Instant::now() + ENOUGH;
    let ended = loop {
        answer(&stage);
        let shown = super::shown(&stage.bench, &["jobs", "show", &job, "--json"]);
        if !matches!(shown["status"].as_str(), Some("pending" | "running")) {
            break shown;
        }
        assert!(Instant::now() < deadline, "it does not end: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    };
    println!("  {} {}", ended["status"], ended["output"]["error"]);
    let is_told = ended["status"] == "completed" || ended["output"]["error"]["message"].is_string();
    assert!(is_told, "it ends well or with a reason: {ended}");
    eventually("no question waits", || open(&stage) == 0);
    stage.close(&ended);
}

/// Lets time go by; somebody may be at the terminal.
fn pass(stage: &Stage, time: Duration, answers: bool) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if answers {
            answer(stage);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill_agent(stage: &Stage) {
    println!("  agent {:?}", stage.agent());
    stage.agent().into_iter().for_each(kill);
}

fn open(stage: &Stage) -> i64 {
    stage
        .bench
        .count("SELECT count(*) FROM approvals WHERE state = 'pending'")
}

/// Allows what is asked at this moment; it may be taken back before anybody could.
fn answer(stage: &Stage) {
    if open(stage) > 0 {
        let query = "SELECT approval_id FROM approvals WHERE state = 'pending' LIMIT 1";
        let id = stage
            .bench
            .database()
            .query_row(query, [], |row| row.get::<_, String>(0));
        if let Ok(id) = id {
            super::run(&stage.bench, &["approve", &id, "--reason", "because"]);
        }
    }
}
