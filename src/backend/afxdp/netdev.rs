//! What the kernel says about network interfaces of the calling thread's network namespace. Asked by ioctl, because
//! `/sys/class/net` shows the namespace in which `/sys` was mounted, not the caller's.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::dataplane::MacAddress;

/// One look at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this namespace; a new one after it was removed and made again.
    pub index: u32,
    /// L3 MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it is up and has a carrier: for a veth, whether its peer is up too.
    pub running: bool,
    /// Its own address.
    pub mac: MacAddress,
}

/// Asks about interfaces.
#[derive(Debug)]
pub struct Netdev(OwnedFd);

impl Netdev {
    /// For the namespace in which the calling thread is now.
    ///
    /// # Errors
    /// When no socket can be had.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Netdev(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// What is known of `name`, or `None` when there is no such interface.
    pub fn look_up(&self, name: &str) -> Option<Interface> {
        let mut request = request(name)?;
        // SAFETY: each ioctl below fills exactly this member.
        let index = unsafe { self.ioctl(libc::SIOCGIFINDEX, &mut request)?.ifr_ifru.ifru_ifindex };
        // SAFETY: as above.
        let mtu = unsafe { self.ioctl(libc::SIOCGIFMTU, &mut request)?.ifr_ifru.ifru_mtu };
        // SAFETY: as above.
        let flags = unsafe { self.ioctl(libc::SIOCGIFFLAGS, &mut request)?.ifr_ifru.ifru_flags };
        // SAFETY: as above.
        let address = unsafe { self.ioctl(libc::SIOCGIFHWADDR, &mut request)?.ifr_ifru.ifru_hwaddr.sa_data };
        let flags = i32::from(flags);
        let up = flags & libc::IFF_UP != 0;
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address) {
            *to = from as u8;
        }
        Some(Interface { index: index as u32, mtu: mtu as u32, up, running: up && flags & libc::IFF_RUNNING != 0, mac })
    }

    fn ioctl<'a>(&self, what: libc::Ioctl, request: &'a mut libc::ifreq) -> Option<&'a libc::ifreq> {
        // SAFETY: all requests used here read and write one `ifreq`.
        let status = unsafe { libc::ioctl(self.0.as_raw_fd(), what, ptr(request)) };
        (status == 0).then_some(request)
    }
}

/// The names of all interfaces.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: no arguments; the result is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return names;
    }
    let mut at = list;
    loop {
        // SAFETY: the list ends with an entry of index 0, at which we stop.
        let entry = unsafe { &*at };
        if entry.if_index == 0 || entry.if_name.is_null() {
            break;
        }
        // SAFETY: a name in the list is a C string.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        names.push(name.to_string_lossy().into_owned());
        // SAFETY: not the last entry.
        at = unsafe { at.add(1) };
    }
    // SAFETY: made by `if_nameindex`, not used any more.
    unsafe { libc::if_freenameindex(list) };
    names
}

fn ptr(request: &mut libc::ifreq) -> *mut libc::ifreq {
    request
}

/// An `ifreq` with the name in it; `None` when the name cannot be one.
fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: an `ifreq` of zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = CString::new(name).ok()?;
    let bytes = name.as_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_known_and_nonsense_is_not() {
        let netdev = Netdev::new().unwrap();
        assert!(names().iter().any(|name| name == "lo"));
        assert_eq!(netdev.look_up("lo").map(|lo| (lo.index, lo.mtu)), Some((1, 65536)));
        assert_eq!(netdev.look_up("no-such-if"), None);
        assert_eq!(netdev.look_up("a-name-that-is-longer-than-any-interface"), None);
    }
}
