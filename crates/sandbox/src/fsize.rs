//! The limit to the size of files (`ulimit -f`). The kernel ends whoever writes beyond it by SIGXFSZ, unless that is
//! caught: then the write fails, which a record can be told of.

/// Lets writes beyond the limit fail instead of ending this process. It is caught rather than ignored, so that whatever
/// program is started from here begins with the default again.
pub fn fail_instead_of_ending() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an all-zero sigaction is valid, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does nothing and is always safe to run; only a signal that does not exist could be refused.
    unsafe { libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut()) };
}
