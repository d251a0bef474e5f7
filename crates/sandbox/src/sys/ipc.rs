//! System V shared memory, semaphores and message queues. They belong to a namespace and to no process, so
//! they stay, with the memory they hold, when everything that used them is gone.

use std::io;

/// Room for whatever the kernel tells about a kind or an object; the largest is 120 bytes.
type Told = [u64; 32];

/// The same three questions for each kind, by other names.
struct Kind {
    /// The highest index in use; 0 also when none is.
    last: fn(&mut Told) -> i32,
    /// The object at an index.
    at: fn(i32, &mut Told) -> i32,
    remove: fn(i32) -> i32,
}

const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const MSG_STAT: i32 = 11;
const MSG_INFO: i32 = 12;
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;

const KINDS: [Kind; 3] = [
    Kind {
        // SAFETY: the kernel writes one of its structures, and `Told` has room for each.
        last: |told| unsafe { libc::shmctl(0, SHM_INFO, told.as_mut_ptr().cast()) },
        // SAFETY: the kernel writes one of its structures, and `Told` has room for each.
        at: |index, told| unsafe { libc::shmctl(index, SHM_STAT, told.as_mut_ptr().cast()) },
        // SAFETY: removes by number and writes nothing.
        remove: |id| unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) },
    },
    Kind {
        // SAFETY: the kernel writes one of its structures, and `Told` has room for each.
        last: |told| unsafe { libc::msgctl(0, MSG_INFO, told.as_mut_ptr().cast()) },
        // SAFETY: the kernel writes one of its structures, and `Told` has room for each.
        at: |index, told| unsafe { libc::msgctl(index, MSG_STAT, told.as_mut_ptr().cast()) },
        // SAFETY: removes by number and writes nothing.
        remove: |id| unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) },
    },
    Kind {
        // SAFETY: the kernel writes one of its structures, and `Told` has room for each.
        last: |told| unsafe { libc::semctl(0, 0, SEM_INFO, told.as_mut_ptr()) },
        // SAFETY: the kernel writes one of its structures, and `Told` has room for each.
        at: |index, told| unsafe { libc::semctl(index, 0, SEM_STAT, told.as_mut_ptr()) },
        // SAFETY: removes by number and writes nothing.
        remove: |id| unsafe { libc::semctl(id, 0, libc::IPC_RMID) },
    },
];

/// Removes every object of this namespace; false when one may be left.
pub(crate) fn clear() -> bool {
    KINDS.iter().all(|kind| {
        let mut told = Told::default();
        let last = (kind.last)(&mut told);
        (0..=last).all(|index| match (kind.at)(index, &mut told) {
            -1 => matches!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::EINVAL | libc::ENOSYS)
            ),
            id => (kind.remove)(id) == 0,
        })
    })
}
