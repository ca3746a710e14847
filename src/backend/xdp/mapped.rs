//! A BPF array in our address space.

use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::MapCore;

use super::StateError;
use super::skel::types;
use crate::dataplane::DropReason;

/// A struct of `ebpf/abi.h` that can be copied as bytes.
///
/// # Safety
/// `repr(C)`, without padding, and valid for every bit pattern.
pub(super) unsafe trait Plain: Copy + Default {
    /// Its bytes, as the kernel has them.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: without padding, every byte of `self` is initialised; the slice borrows `self`.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The same to be written to.
    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and whatever is written is valid.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), size_of::<Self>()) }
    }

    /// From the kernel's bytes; `None` when there are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..size_of::<Self>())?;
        // SAFETY: the slice has the size of `Self`, whose every bit pattern is valid; the read need not be aligned.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

macro_rules! plain {
    ($($name:ident = $bytes:expr,)*) => {
        $(
            const _: () = assert!(size_of::<types::$name>() == $bytes);
            // SAFETY: integers and arrays of them, whose sizes add up to the size above.
            unsafe impl Plain for types::$name {}
        )*
    };
}
plain! {
    port = 4,
    edge_key = 32,
    edge = 4,
    flow_key = 36,
    job_config = 24,
    flow_state = 128,
    job_state = 24,
    stats = 8 * (10 + DropReason::ALL.len()),
}

/// An mmapable ARRAY, read and written while the kernel does the same. Each 64-bit word is read and written whole (so are
/// all registers, which are such words); a struct as a whole may be of two moments.
pub(super) struct Mapped<T> {
    words: NonNull<AtomicU64>,
    len: usize,
    bytes: usize,
    holds: PhantomData<T>,
}

// SAFETY: all access goes through atomics.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mapped<T> {}

impl<T: Plain> Mapped<T> {
    const WORDS: usize = {
        assert!(size_of::<T>().is_multiple_of(8), "the kernel rounds array values up to 8 bytes");
        size_of::<T>() / 8
    };

    pub(super) fn new(map: &impl MapCore) -> Result<Self, StateError> {
        let name = map.name().to_string_lossy().into_owned();
        if map.value_size() as usize != size_of::<T>() {
            return Err(StateError::new(&name, "the value's size is not that of the struct"));
        }
        let len = map.max_entries() as usize;
        let bytes = len * size_of::<T>();
        // SAFETY: a new shared mapping of a map that we hold open; touches no other memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(words) if at != libc::MAP_FAILED => Ok(Mapped { words, len, bytes, holds: PhantomData }),
            _ => Err(StateError::new(&name, std::io::Error::last_os_error())),
        }
    }

    fn words(&self, index: usize) -> Option<&[AtomicU64]> {
        if index >= self.len {
            return None;
        }
        // SAFETY: inside the mapping, since `index < len`.
        let first = unsafe { self.words.as_ptr().add(index * Self::WORDS) };
        // SAFETY: `WORDS` words from there are inside the mapping too; it lives as long as `self` and is 8-byte aligned.
        Some(unsafe { std::slice::from_raw_parts(first, Self::WORDS) })
    }

    /// One value; `None` out of range.
    pub(super) fn read(&self, index: usize) -> Option<T> {
        let mut value = T::default();
        for (bytes, word) in value.as_bytes_mut().chunks_exact_mut(8).zip(self.words(index)?) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Some(value)
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Replaces one value; out of range is ignored.
    pub(super) fn write(&self, index: usize, value: &T) {
        for (word, bytes) in self.words(index).into_iter().flatten().zip(value.as_bytes().chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
    }

    /// One word of one value; `None` out of range.
    pub(super) fn word(&self, index: usize, word: usize) -> Option<&AtomicU64> {
        self.words(index)?.get(word)
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, with its own length; nothing borrows it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.bytes) };
    }
}
