//! Address filter: decides to which addresses a request may be sent, once the host's name is resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ip_network::{Ipv4Network, Ipv6Network};

/// Objection to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// The address belongs to a private network, of the kind in the field: a rule may grant it.
    Private(&'static str),
    /// The address is never permitted, whatever a rule grants.
    Never(&'static str),
}

/// Addresses of cloud metadata services, which serve credentials to machines, outside of the link-local ranges.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Returns the objection to `address`; `None` for an address of the public internet.
pub(super) fn objection(address: IpAddr) -> Option<Objection> {
    // THREAT: T07
    if METADATA.contains(&address) {
        return Some(Objection::Never("cloud metadata"));
    }
    match address {
        IpAddr::V4(address) => objection_v4(address),
        IpAddr::V6(address) => objection_v6(address),
    }
}

fn objection_v4(address: Ipv4Addr) -> Option<Objection> {
    use Objection::{Never, Private};
    let Ok(network) = Ipv4Network::new(address, 32) else { return Some(Never("unusable")) };
    match () {
        () if network.is_loopback() => Some(Private("loopback")),
        () if network.is_private() => Some(Private("private")),
        () if network.is_shared_address_space() => Some(Private("carrier-grade NAT")),
        () if network.is_link_local() => Some(Never("link-local")),
        () if network.is_multicast() => Some(Never("multicast")),
        () if !network.is_global() => Some(Never("reserved")),
        () => None,
    }
}

fn objection_v6(address: Ipv6Addr) -> Option<Objection> {
    use Objection::{Never, Private};
    let Ok(network) = Ipv6Network::new(address, 128) else { return Some(Never("unusable")) };
    let segments = address.segments();
    match segments {
        _ if network.is_loopback() => Some(Private("loopback")),
        _ if network.is_unique_local() => Some(Private("unique-local")),
        _ if network.is_unicast_link_local() => Some(Never("link-local")),
        _ if network.is_multicast() => Some(Never("multicast")),
        // These stand for IPv4 addresses, which are to be named as such.
        [0, 0, 0, 0, 0, 0xffff, ..] => Some(Never("IPv4-mapped")),
        [0, 0, 0, 0, 0, 0, ..] => Some(Never("IPv4-compatible")),
        [0x64, 0xff9b, ..] => Some(Never("NAT64")),
        [0x2002, ..] => Some(Never("6to4")),
        [0x2001, 0, ..] => Some(Never("Teredo")),
        [_, _, _, _, _, 0x5efe, ..] => Some(Never("ISATAP")),
        // Only 2000::/3 is handed out, and a few blocks of it have other uses.
        [first, ..] if first >> 13 != 1 => Some(Never("reserved")),
        [0x2001, 1..0x200, ..] | [0x3fff, 0..0x1000, ..] => Some(Never("reserved")),
        _ if !network.is_global() => Some(Never("reserved")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], expected: Option<Objection>) {
        for text in addresses {
            let address: IpAddr = text.parse().expect(text);
            assert_eq!(objection(address), expected, "{text}");
        }
    }

    #[test]
    fn public_addresses_are_fine() {
        check(&["1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.0", "192.167.0.1", "100.63.255.255"], None);
        check(&["2606:4700::1111", "2a00:1450:4001:81b::200e", "2001:4860:4860::8888"], None);
    }

    #[test]
    fn private_networks_are_told_apart() {
        check(&["127.0.0.1", "127.255.0.9", "::1"], Some(Objection::Private("loopback")));
        check(&["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"], Some(Objection::Private("private")));
        check(&["100.64.0.1", "100.127.255.255"], Some(Objection::Private("carrier-grade NAT")));
        check(&["fc00::1", "fd12:3456::1"], Some(Objection::Private("unique-local")));
    }

    #[test]
    fn some_are_never_granted() {
        check(&["169.254.169.254", "169.254.0.1", "fe80::1", "febf::1"], Some(Objection::Never("link-local")));
        check(&["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"], Some(Objection::Never("multicast")));
        check(&["0.0.0.0", "0.1.2.3", "255.255.255.255", "240.0.0.1"], Some(Objection::Never("reserved")));
        check(&["192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1"], Some(Objection::Never("reserved")));
        check(
            &["2001:db8::1", "3fff::1", "4000::1", "fec0::1", "100::1", "2001:20::1"],
            Some(Objection::Never("reserved")),
        );
        check(
            &["100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"],
            Some(Objection::Never("cloud metadata")),
        );
    }

    #[test]
    fn ipv4_in_ipv6_is_refused_in_every_form() {
        check(&["::ffff:127.0.0.1", "::ffff:1.1.1.1"], Some(Objection::Never("IPv4-mapped")));
        check(&["::127.0.0.1", "::7f00:2", "::"], Some(Objection::Never("IPv4-compatible")));
        check(&["64:ff9b::7f00:1", "64:ff9b:1::a00:1"], Some(Objection::Never("NAT64")));
        check(&["2002:7f00:1::1"], Some(Objection::Never("6to4")));
        check(&["2001::1"], Some(Objection::Never("Teredo")));
        check(&["2606:4700::5efe:7f00:1"], Some(Objection::Never("ISATAP")));
    }
}
