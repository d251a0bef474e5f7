//! Charts, drawn here: SVG that needs no script, each with the same numbers as a table.

use askama::Template;

/// Room for a chart, in its own units.
const WIDTH: usize = 720;
const HEIGHT: usize = 180;
const BASE: usize = 150;
const LEFT: usize = 36;

/// One series of a chart: a name, and how it looks.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) tone: &'static str,
}

/// One place along the chart, with a number for each series.
pub(super) struct Bucket {
    pub(super) label: String,
    pub(super) values: Vec<usize>,
}

/// Bars, stacked where there are several series.
#[derive(Template)]
#[template(path = "chart.html")]
pub(super) struct Chart {
    id: &'static str,
    title: &'static str,
    /// What the chart says, in a sentence.
    said: String,
    series: Vec<Series>,
    buckets: Vec<Bucket>,
    bars: Vec<Bar>,
    lines: Vec<Mark>,
    labels: Vec<Mark>,
    width: usize,
    height: usize,
    base: usize,
    left: usize,
}

struct Bar {
    tone: &'static str,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    title: String,
}

struct Mark {
    at: usize,
    text: String,
}

impl Chart {
    pub(super) fn new(
        id: &'static str,
        title: &'static str,
        said: String,
        series: Vec<Series>,
        buckets: Vec<Bucket>,
    ) -> Self {
        let most = buckets
            .iter()
            .map(|bucket| bucket.values.iter().sum())
            .max()
            .unwrap_or(0);
        let top = nice(most);
        let step = (WIDTH - LEFT) / buckets.len().max(1);
        let bar_width = step.saturating_sub(3).clamp(1, 64);
        let scale = |value: usize| value * (BASE - 10) / top;
        let mut bars = Vec::new();
        for (index, bucket) in buckets.iter().enumerate() {
            let mut floor = BASE;
            for (series, value) in series.iter().zip(&bucket.values) {
                // Something is never drawn as nothing.
                let height = scale(*value).max(usize::from(*value > 0) * 2);
                if height == 0 {
                    continue;
                }
                floor -= height.min(floor);
                bars.push(Bar {
                    tone: series.tone,
                    x: LEFT + index * step + (step - bar_width) / 2,
                    y: floor,
                    width: bar_width,
                    height,
                    title: format!("{}: {value} {}", bucket.label, series.name),
                });
            }
        }
        let lines = [0, top / 2, top].into_iter().map(|value| Mark {
            at: BASE - scale(value),
            text: value.to_string(),
        });
        let every = buckets.len().div_ceil(10).max(1);
        let labels = buckets.iter().enumerate().filter(|(index, _)| index % every == 0);
        let labels = labels.map(|(index, bucket)| Mark {
            at: LEFT + index * step + step / 2,
            text: bucket.label.clone(),
        });
        Self {
            id,
            title,
            said,
            lines: lines.collect(),
            labels: labels.collect(),
            series,
            buckets,
            bars,
            width: WIDTH,
            height: HEIGHT,
            base: BASE,
            left: LEFT,
        }
    }
}

/// The next round number, and an even one, so that half of it is whole.
fn nice(most: usize) -> usize {
    let mut unit = 1;
    loop {
        for factor in [2, 4, 10] {
            if factor * unit >= most {
                return factor * unit;
            }
        }
        unit *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_a_chart_is_round_and_even() {
        for (most, top) in [(0, 2), (1, 2), (3, 4), (5, 10), (11, 20), (21, 40), (401, 1_000)] {
            assert_eq!(nice(most), top, "{most}");
        }
    }

    #[test]
    fn a_chart_draws_within_its_room_and_says_the_same_as_a_table() {
        let series = vec![
            Series {
                name: "ok",
                tone: "good",
            },
            Series {
                name: "failed",
                tone: "bad",
            },
        ];
        let buckets = (0..30).map(|hour| Bucket {
            label: format!("<{hour}>"),
            values: vec![hour * 7, 1],
        });
        let chart = Chart::new("c", "Calls", "said".to_owned(), series, buckets.collect());
        for bar in &chart.bars {
            assert!(bar.x >= LEFT && bar.x + bar.width <= WIDTH, "{}", bar.x);
            assert!(bar.y + bar.height <= BASE && bar.height > 0, "{} {}", bar.y, bar.height);
        }
        let html = chart.render().unwrap();
        assert!(!html.contains("<29>"), "labels are escaped");
        assert_eq!(html.matches("<tr>").count(), 31, "a head and a line each");
    }
}
