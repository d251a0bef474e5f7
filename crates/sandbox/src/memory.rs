//! Giving back memory that a start or a long answer needed and the work after it does not.

use std::ffi::{c_int, c_void};

/// Lets go of this program's own code and constants, as far as they are in memory on our account. They are
/// those of its file: what is used again is mapped again, a page at a time, and the rest no longer counts. A
/// start runs through most of the program once; what serves a client afterwards is a small part of it.
pub fn let_go_of_code() {
    // SAFETY: the callback keeps to what it is given and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(let_go), std::ptr::null_mut()) };
    let_go_of_heap();
}

/// Gives back what the allocator holds for nobody. It keeps what was freed between other things, for good, and what was
/// freed by threads that are gone.
pub fn let_go_of_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: gives back free memory of the allocator, which is as safe to call as to allocate.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Called for the first object, which is the program itself; one is all we want to see.
unsafe extern "C" fn let_go(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the C library gives a valid object for as long as the call lasts.
    let object = unsafe { &*object };
    // SAFETY: the object says how many headers it has.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let page = page_bytes();
    for header in headers {
        let is_changed = header.p_flags & libc::PF_W != 0;
        if header.p_type != libc::PT_LOAD || is_changed {
            continue;
        }
        let begin = (object.dlpi_addr + header.p_vaddr).next_multiple_of(page);
        let end = (object.dlpi_addr + header.p_vaddr + header.p_memsz) / page * page;
        if let Some(bytes @ 1..) = end.checked_sub(begin) {
            // SAFETY: whole pages of a segment that nobody may write, so each is as it is in the file, from
            // which it comes back when it is next looked at.
            unsafe { libc::madvise(begin as *mut c_void, bytes as usize, libc::MADV_DONTNEED) };
        }
    }
    1
}

fn page_bytes() -> u64 {
    // SAFETY: takes an integer only.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this process holds of files, in kB.
    fn of_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn code_that_was_let_go_of_still_runs() {
        let before = of_files();
        let_go_of_code();
        let after = of_files();
        assert!(after < before, "{before} kB before, {after} kB after");
        // Code and constants that were in memory before.
        assert!(format!("{:?}", std::env::args()).contains("Args"));
    }
}
