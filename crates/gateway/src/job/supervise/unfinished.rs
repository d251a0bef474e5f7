//! A message while it is being written: shown to whoever watches, and kept nowhere.

use super::News;
use super::following::Follower;
use crate::audit::redact::Redactor;
use crate::clock::Timestamp;
use crate::limits;

/// The pieces of a message so far.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    text: String,
    /// When it was last shown, and how much of it there was.
    shown: Option<(Timestamp, usize)>,
}

impl Unfinished {
    /// Adds a piece, as far as there is room: whoever wants all of it waits for the message.
    pub(super) fn add(&mut self, piece: &str) {
        let room = limits::UNFINISHED_BYTES_MAX.saturating_sub(self.text.len());
        let fits = piece.char_indices().map(|(at, it)| at + it.len_utf8());
        let end = fits.take_while(|end| *end <= room).last().unwrap_or(0);
        self.text.push_str(&piece[..end]);
    }

    /// Whether there is something new, and the last time is long enough ago.
    fn is_due(&self, now: Timestamp) -> bool {
        match self.shown {
            None => !self.text.is_empty(),
            Some((at, length)) => self.text.len() > length && now.since(at) >= limits::UNFINISHED_EVERY,
        }
    }

    /// What may be seen of it. Its last word may be half of a secret, which no pattern knows, so it waits.
    fn presentable(&self, redactor: &Redactor) -> String {
        let whole = self.text.trim_end_matches(|it: char| it.is_ascii_graphic());
        redactor.redact_text(whole).into_owned()
    }
}

impl Follower {
    /// Shows what is new of the message that the agent is at.
    pub(super) async fn show_unfinished(&mut self) {
        let parts = &self.supervisor.parts;
        let now = parts.clock.now();
        if !self.unfinished.is_due(now) {
            return;
        }
        self.unfinished.shown = Some((now, self.unfinished.text.len()));
        let text = self.unfinished.presentable(&parts.redactor);
        let shown = parts
            .files
            .write_unfinished(&self.session.folder(), Some(text.clone()))
            .await;
        if let Err(error) = shown {
            tracing::debug!(%error, "a message cannot be shown while it is written");
        }
        let job_id = self.job.id.clone();
        // Nobody may be watching.
        let _ = self.supervisor.news.send(News::Text {
            job_id,
            text: text.into(),
        });
    }

    /// The message is whole, or will never be.
    pub(super) async fn forget_unfinished(&mut self) {
        if std::mem::take(&mut self.unfinished).shown.is_some() {
            self.remove_unfinished().await;
        }
    }

    /// Takes away what is shown, also what an earlier life of the job left.
    pub(super) async fn remove_unfinished(&self) {
        let gone = self
            .supervisor
            .parts
            .files
            .write_unfinished(&self.session.folder(), None)
            .await;
        if let Err(error) = gone {
            tracing::debug!(%error, "a message that was being written is still shown");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    fn shown(pieces: &[&str]) -> String {
        let mut message = Unfinished::default();
        pieces.iter().for_each(|piece| message.add(piece));
        message.presentable(&Redactor::new(Config::default()))
    }

    #[test]
    fn no_secret_is_seen_at_any_moment_of_its_being_written() {
        let secret = format!("ghp_{}", "a1B2".repeat(9));
        for text in [
            format!("the token is {secret} and that is it"),
            format!("password={secret}\n and more"),
            format!("export DB_PASSWORD='{secret} {secret}' && x"),
        ] {
            for end in 0..=text.len() {
                let seen = shown(&[&text[..end]]);
                assert!(!seen.contains(&secret[..6]), "{end}: {seen}");
            }
        }
    }

    #[test]
    fn words_are_seen_once_they_are_whole_also_where_none_are_parted() {
        assert_eq!(shown(&["one tw"]), "one ");
        assert_eq!(shown(&["one tw", "o "]), "one two ");
        assert_eq!(shown(&["文字は続く"]), "文字は続く");
    }

    #[test]
    fn a_message_that_is_too_long_is_seen_to_its_bound_and_whole_characters() {
        let mut message = Unfinished::default();
        message.add("é");
        message.add(&"é".repeat(limits::UNFINISHED_BYTES_MAX));
        assert_eq!(message.text.len(), limits::UNFINISHED_BYTES_MAX / 2 * 2);
    }
}
