//! Packets of other people's hardware and software, as hexadecimal text, for the tests of this module.

/// A CNP of a ConnectX-4 Lx (scapy, test/contrib/roce.uts).
pub const CNP_V4: &str = "e41d2dab2bc27cfe90643b320800 45c2003c718c4000401191610a0011010a001201 000012b700280000 \
                          8100ffff4000011800000000 00000000000000000000000000000000 82fd002a";
/// A UC SEND Only over IPv4 (scapy).
pub const UC_SEND_V4: &str = "248a07a8fa22248a07a8fa220800 45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 \
                              2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3";
/// A UC SEND Only over IPv6 (scapy).
pub const UC_SEND_V6: &str = "248a07a8fa22248a07a8fa2286dd \
                              6e21face002c11ff20220000000000000000000000001023 20230000000000000000000000001024 \
                              c00012b7002ce7c5 2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 3e5b743b";
/// An RC READ request over IPv4 (PcapPlusPlus, pull request 1603).
pub const READ_REQUEST_V4: &str = "000c29ae1ca4000c2989a2e50800 4500003cbe10400040118a4bc0a83881c0a83883 df9412b700280000 \
                                   0c00ffff000000118054cb63 00007fee260fb000000002b800010000 08c6154a";

/// The bytes of a text of hexadecimal digits and spaces.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
