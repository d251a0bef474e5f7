//! Processes found by what they were started with, wherever they went since.

use std::fs;

/// Processes that carry a job's mark.
pub(crate) fn of_job(job_id: &str) -> Vec<u32> {
    in_environment(&format!("COUNTERSIGN_JOB={job_id}\0"))
}

/// Processes that were started with this text in their environment.
pub(crate) fn in_environment(text: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(text)
    })
    .collect()
}

pub(crate) fn is_sleeping(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
}
