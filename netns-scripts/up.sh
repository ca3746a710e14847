#!/usr/bin/env bash
# Makes N hosts around a switch, each in a network namespace of its own, and nothing that forwards between them:
#
#   PREFIX-h1  eth0 ---- sw-h1  +-----------+
#   PREFIX-h2  eth0 ---- sw-h2  | PREFIX-sw |     then: ip netns exec PREFIX-sw symphony run --config FILE
#   ..                          +-----------+
#
# Host i has 10.0.0.i/16 and fd00::i/64 and the MAC 02:00:00:00:00:i; for job j also 10.0.j.i and fd00::j:i, since
# ranks of different jobs need addresses of their own. What an earlier run with the same prefix left is removed first,
# with the processes in its namespaces; so it can be run again after anything.
set -eEuo pipefail

usage() {
	cat <<-END
	usage: up.sh [OPTIONS] [N]      make N hosts (default 4, at most 64) around a switch
	       up.sh [OPTIONS] --down   remove them

	  --prefix NAME        of the namespaces: NAME-sw, NAME-h1, .. (default \$SYMPHONY_NS_PREFIX or "sym")
	  --mtu BYTES          of the links (default \$SYMPHONY_NS_MTU or 2200: RoCE path MTU 2048 and its headers)
	  --jobs J             addresses for J jobs, and their rings in the configuration (default \$SYMPHONY_NS_JOBS or 0)
	  --neighbours         permanent neighbour entries, so that there is no ARP and no ND
	  --config-out FILE    write a configuration that fits
	  --rate RATE          emulated line rate in it, such as 200Mbit (default: none)
	END
}

die() {
	echo "up.sh: $*" >&2
	exit 2
}

hosts=4
prefix=${SYMPHONY_NS_PREFIX:-sym}
mtu=${SYMPHONY_NS_MTU:-2200}
jobs=${SYMPHONY_NS_JOBS:-0}
neighbours=no
config=
rate=
down=no
while [ $# -gt 0 ]; do
	case $1 in
	--prefix | --mtu | --jobs | --config-out | --rate)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--prefix) prefix=$2 ;;
		--mtu) mtu=$2 ;;
		--jobs) jobs=$2 ;;
		--config-out) config=$2 ;;
		--rate) rate=$2 ;;
		esac
		shift
		;;
	--neighbours) neighbours=yes ;;
	--down) down=yes ;;
	-h | --help)
		usage
		exit 0
		;;
	[0-9]*) hosts=$1 ;;
	*) die "what is $1? see up.sh --help" ;;
	esac
	shift
done
[[ $prefix =~ ^[A-Za-z0-9_-]{1,32}$ ]] || die "--prefix $prefix: 1 to 32 letters, digits, _ and -"
is_in() { # is $1 a number from $2 to $3?
	[[ $1 =~ ^[0-9]{1,9}$ ]] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]
}
is_in "$hosts" 1 64 || die "$hosts hosts: 1 to 64"
is_in "$jobs" 0 250 || die "--jobs $jobs: 0 to 250"
is_in "$mtu" 1280 3500 || die "--mtu $mtu: 1280 (IPv6) to 3500 (what XDP takes on a veth)"
[ "$(id -u)" = 0 ] || die "network namespaces need root; run it with sudo"
for tool in ip ethtool; do
	command -v $tool >/dev/null || die "$tool is missing; apt-get install iproute2 ethtool"
done

switch=$prefix-sw

remove() {
	local namespace pid
	for namespace in $(ip netns list | awk '{ print $1 }' | grep -xE "$prefix-(sw|h[0-9]+)"); do
		for pid in $(ip netns pids "$namespace" 2>/dev/null); do
			kill -KILL "$pid" 2>/dev/null || true
		done
		ip netns del "$namespace" || true
	done
}

# Namespace names, one for each host.
names() {
	local i
	for ((i = 1; i <= hosts; i++)); do echo "$prefix-h$i"; done
}

# Addresses of host $1, of family $2 (4 or 6), without the prefix length.
addresses() {
	local j
	if [ "$2" = 4 ]; then
		for ((j = 0; j <= jobs; j++)); do echo "10.0.$j.$1"; done
	else
		printf 'fd00::%x\n' "$1"
		for ((j = 1; j <= jobs; j++)); do printf 'fd00::%x:%x\n' "$j" "$1"; done
	fi
}

mac() {
	printf '02:00:00:00:%02x:%02x' "$1" "$2"
}

# Sets keys of net.ipv6.conf.default: $1 namespace, then key=value ..
set_ipv6() {
	local namespace=$1
	shift
	# shellcheck disable=SC2016 # for the inner shell
	ip netns exec "$namespace" sh -c \
		'for pair; do echo "${pair#*=}" >"/proc/sys/net/ipv6/conf/default/${pair%%=*}"; done' sh "$@"
}

make_switch() {
	ip netns add "$switch"
	# The switch's own stack says nothing on the links.
	set_ipv6 "$switch" disable_ipv6=1
	ip -n "$switch" link set lo up
}

make_host() {
	local i=$1 host=$prefix-h$1 address
	ip netns add "$host"
	# No duplicate address detection and no router solicitation: addresses work at once, and the links are quiet.
	set_ipv6 "$host" accept_dad=0 dad_transmits=0 router_solicitations=0 accept_ra=0
	ip -n "$host" link set lo up
	ip link add "sw-h$i" netns "$switch" address "$(mac 1 "$i")" mtu "$mtu" numrxqueues 1 numtxqueues 1 \
		type veth peer name eth0 netns "$host" address "$(mac 0 "$i")" mtu "$mtu" numrxqueues 1 numtxqueues 1
	# Checksums and VLAN tags must be in the packets: XDP does not see what a veth leaves to hardware. GRO makes the far end run
	# NAPI, without which a veth takes no redirected frames.
	ip netns exec "$host" ethtool -K eth0 tx off txvlan off gro on >/dev/null
	ip netns exec "$switch" ethtool -K "sw-h$i" tx off txvlan off >/dev/null
	for address in $(addresses "$i" 4); do ip -n "$host" address add "$address/16" dev eth0; done
	for address in $(addresses "$i" 6); do ip -n "$host" address add "$address/64" dev eth0 nodad; done
	ip -n "$host" link set eth0 up
	ip -n "$switch" link set "sw-h$i" up
}

# The kernel reports new carriers at most once a second.
wait_for_carriers() {
	local try
	for ((try = 0; try < 50; try++)); do
		ip -n "$switch" -br link show type veth | awk '$2 != "UP" { down = 1 } END { exit down }' && return
		sleep 0.1
	done
	die "the links of $switch do not come up"
}

make_neighbours() {
	local i j address family
	for ((i = 1; i <= hosts; i++)); do
		for ((j = 1; j <= hosts; j++)); do
			[ "$i" != "$j" ] || continue
			for family in 4 6; do
				for address in $(addresses "$j" $family); do
					echo "neighbour replace $address lladdr $(mac 0 "$j") dev eth0 nud permanent"
				done
			done
		done | ip -n "$prefix-h$i" -batch -
	done
}

write_config() {
	local i j
	cat <<-END
	# Made by up.sh for the hosts $prefix-h1 .. $prefix-h$hosts.
	# ip netns exec $switch symphony run --config FILE

	[switch]
	name = "$prefix"
	END
	for ((i = 1; i <= hosts; i++)); do
		printf '\n[[port]]\nname = "h%s"\ninterface = "sw-h%s"\n' "$i" "$i"
		[ -z "$rate" ] || printf 'rate = "%s"\n' "$rate"
	done
	for ((j = 1; j <= jobs && hosts >= 2; j++)); do
		printf '\n[[job]]\nid = %s\nring = [' "$j"
		for ((i = 1; i <= hosts; i++)); do printf '%s"10.0.%s.%s"' "$([ "$i" = 1 ] || echo ', ')" "$j" "$i"; done
		printf ']\n'
	done
}

remove
[ $down = no ] || exit 0
trap 'remove' ERR INT TERM # half a network is of no use
make_switch
for ((i = 1; i <= hosts; i++)); do make_host "$i"; done
[ $neighbours = no ] || make_neighbours
wait_for_carriers
[ -z "$config" ] || write_config >"$config"
echo "$switch and $(names | tr '\n' ' ')are up; ip netns exec $prefix-h1 ping 10.0.0.2 once a switch runs"
