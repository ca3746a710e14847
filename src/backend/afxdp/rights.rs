//! The capabilities without which no switch runs; capabilities(7).

use std::fs;

/// A capability by name, its bit, and whether unlimited locked memory stands in for it.
const NEEDED: [(&str, u32, bool); 3] = [
    ("CAP_NET_RAW", 13, false),   // AF_XDP sockets
    ("CAP_SYS_ADMIN", 21, false), // the XDP program, and the namespace of the UMEM's first socket
    ("CAP_IPC_LOCK", 14, true),   // the UMEM is locked memory
];

/// Those that this process lacks.
pub fn missing() -> Vec<&'static str> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    missing_of(&read("/proc/self/status"), &read("/proc/self/limits"))
}

/// From the texts of `/proc/PID/status` and `/proc/PID/limits`.
fn missing_of(status: &str, limits: &str) -> Vec<&'static str> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let unlimited = locked.is_some_and(|limit| limit.trim_start().starts_with("unlimited"));
    let has = |bit: u32, by_limit| effective & (1 << bit) != 0 || by_limit && unlimited;
    NEEDED.iter().filter(|(_, bit, by_limit)| !has(*bit, *by_limit)).map(|(name, ..)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_set_and_memory_may_be_unlimited() {
        let missing = |effective: &str, limit: &str| {
            let limits =
                format!("Max processes  1  1  processes\nMax locked memory         {limit}   {limit}   bytes\n");
            missing_of(&format!("Name:\tx\nCapPrm:\t0\nCapEff:\t{effective}\n"), &limits)
        };
        assert!(missing("000001ffffffffff", "8388608").is_empty());
        assert!(missing("0000000000206000", "8388608").is_empty());
        assert_eq!(missing("0000000000202000", "8388608"), ["CAP_IPC_LOCK"]);
        assert!(missing("0000000000202000", "unlimited").is_empty());
        assert_eq!(missing("0000000000004000", "8388608"), ["CAP_NET_RAW", "CAP_SYS_ADMIN"]);
        assert_eq!(missing("0000000000000000", "8388608").len(), 3);
        assert_eq!(missing_of("", "").len(), 3);
    }
}
