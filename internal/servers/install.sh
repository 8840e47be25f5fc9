#!/bin/sh
# Installs the servers that the tests and the lab start as their own children: MySQL or MariaDB, Redis or Valkey, nginx, etcd
# and ZooKeeper. What is there already stays as it is. No system service is left running or enabled, and none that existed
# is touched. The lab does without etcd or ZooKeeper: where one cannot be installed, this script says so and succeeds,
# unless it is called with --all.
#
# On Debian and Ubuntu, mariadb-server-core, redis-tools and libzookeeper-java carry the servers without their services:
# redis-check-rdb is redis-server under another name, and the package zookeeper adds a user and a Java with a desktop. nginx
# and etcd come only with their services, so those are kept from starting and are disabled.
set -eu

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/libexec:/opt/homebrew/bin:/opt/homebrew/sbin
export PATH

# first NAME... prints the path of the first of these programs that is installed.
first() {
	for name; do
		command -v "$name" && return 0
	done
	return 1
}

find_mysql() { first mysqld mariadbd; }
find_redis() { first redis-server valkey-server redis-check-rdb valkey-check-rdb; }
find_nginx() { first nginx; }
find_etcd() { first etcd; }

# A ZooKeeper is its jars and a Java: see zookeeper.go, which looks at the same places.
find_zookeeper() {
	[ -x "${JAVA_HOME:-}/bin/java" ] || first java >/dev/null || return 1
	for jars in "${ZOOKEEPER_HOME:+$ZOOKEEPER_HOME/lib}" /opt/homebrew/opt/zookeeper/libexec/lib; do
		[ ! -d "$jars" ] || {
			echo "$jars"
			return 0
		}
	done
	[ -e /usr/share/java/zookeeper.jar ] && echo /usr/share/java/zookeeper.jar
}

# missing SERVER... prints those that are not installed.
missing() {
	for server; do
		"find_$server" >/dev/null || printf '%s ' "$server"
	done
}

say() { echo "servers: $*" >&2; }

# available PACKAGE says whether apt can install it.
available() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

# packages SERVER... prints the packages to install; it fails where apt knows none for one of them. Of a server's names, the
# first that apt knows is taken; those with a comma between them go together.
packages() {
	for server; do
		case $server in
		mysql)
			# Older releases put the version into the name.
			versioned=$(apt-cache pkgnames mariadb-server-core- 2>/dev/null | sort -V | tail -n 1)
			names="mariadb-server-core $versioned mysql-server-core mysql-server-core-8.0"
			;;
		redis) names="redis-tools valkey-tools" ;;
		nginx) names=nginx ;;
		etcd) names="etcd-server etcd" ;;
		zookeeper)
			names=libzookeeper-java
			first java >/dev/null || names=$names,default-jre-headless
			;;
		esac
		found=
		for name in $names; do
			if available "${name%%,*}"; then
				found=$(echo "$name" | tr , ' ')
				break
			fi
		done
		[ "$found" ] || return 1
		echo "$found"
	done
}

apt() {
	# needrestart would restart services of this machine whose libraries were upgraded.
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1
}

policy=/usr/sbin/policy-rc.d
mark='# Temporary: made by install.sh of stock, which removes it.'
log=
updated=              # once the package lists are
services='nginx etcd' # that come with the packages
ours=                 # of these, the ones that this installation brings

# Package scripts ask policy-rc.d before they start a service; 101 forbids it. One that exists is left alone.
forbid_services() {
	if [ -f $policy ] && grep -qxF "$mark" $policy; then
		rm -f $policy # left by an installation that was killed
	fi
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >$policy
		chmod 755 $policy
	fi
	for service in $services; do
		for unit in /etc/init.d /lib/systemd/system /usr/lib/systemd/system /etc/systemd/system; do
			[ ! -e $unit/$service ] && [ ! -e $unit/$service.service ] || continue 2
		done
		ours="$ours $service"
	done
}

# restore undoes forbid_services and disables the services that this installation brought.
restore() {
	for service in $ours; do
		if [ -d /run/systemd/system ]; then
			systemctl disable --now "$service.service" >>"$log" 2>&1 || :
		else
			rm -f "/etc/systemd/system/multi-user.target.wants/$service.service"
			[ ! -e "/etc/init.d/$service" ] || "/etc/init.d/$service" stop >>"$log" 2>&1 || :
		fi
		[ ! -e "/etc/init.d/$service" ] || update-rc.d "$service" disable >>"$log" 2>&1 || :
	done
	if [ -f $policy ] && grep -qxF "$mark" $policy; then
		rm -f $policy
	fi
	rm -f "$log"
}

# update_lists succeeds once, as a second time would bring nothing new.
update_lists() {
	[ ! "$updated" ] || return 1
	updated=yes
	say "apt-get update"
	apt update
}

# install_with_apt SERVER... leaves it to the caller to prepare and to restore.
install_with_apt() {
	# The package lists may be absent, or so old that the files they name are gone.
	if ! chosen=$(packages "$@"); then
		update_lists || :
		chosen=$(packages "$@") || {
			say "apt knows no package for: $*"
			return 1
		}
	fi
	# shellcheck disable=SC2086 # one word a package
	set -- $chosen
	say "apt-get install" "$@"
	apt install --no-install-recommends "$@" || {
		update_lists && apt install --no-install-recommends "$@"
	} || {
		tail -n 20 "$log" >&2
		say "apt-get install $* failed"
		return 1
	}
}

by_hand() {
	say "not installed: $*. This script installs packages on Debian and Ubuntu only; elsewhere, run one of"
	cat >&2 <<-END
		  Fedora, RHEL   sudo dnf install mariadb-server valkey nginx      (or redis)
		  openSUSE       sudo zypper install mariadb redis nginx
		  Arch           sudo pacman -S mariadb valkey nginx etcd
		  Alpine         sudo apk add mariadb redis nginx
		  macOS          brew install mysql redis nginx etcd zookeeper
	END
	say "only the programs are needed: no service has to be started or enabled"
	say "optional: etcd from https://etcd.io/docs/latest/install, and a release of https://zookeeper.apache.org/releases.html," \
		"unpacked, with ZOOKEEPER_HOME naming its directory, and a Java"
}

needed='mysql redis nginx'
optional='etcd zookeeper'
if [ "${1:-}" = --all ]; then
	needed="$needed $optional" optional=
fi

# shellcheck disable=SC2086 # one word a server, here and below
need=$(missing $needed)
want=
# shellcheck disable=SC2086
for server in $(missing $optional); do
	# What package lists lack that know nginx, no update brings: it is not tried again with every call.
	if command -v apt-get >/dev/null && { ! available nginx || packages "$server" >/dev/null; }; then
		want="$want$server "
	fi
done

if [ "$need" ] && ! command -v apt-get >/dev/null; then
	by_hand "$need"
	exit 1
elif [ "$need$want" ] && [ "$(id -u)" -ne 0 ]; then
	if command -v sudo >/dev/null; then
		quietly=
		[ "$need" ] || quietly=-n # nobody is asked for a password for the sake of what the lab can do without
		# shellcheck disable=SC2086
		sudo $quietly ${JAVA_HOME:+JAVA_HOME="$JAVA_HOME"} ${ZOOKEEPER_HOME:+ZOOKEEPER_HOME="$ZOOKEEPER_HOME"} sh "$0" "$@" && exit
	fi
	if [ "$need" ]; then
		say "not installed: $need- run this script as root: sh $0"
		exit 1
	fi
elif [ "$need$want" ]; then
	log=$(mktemp)
	trap restore EXIT
	trap 'exit 1' HUP INT TERM
	forbid_services
	# shellcheck disable=SC2086
	[ ! "$need" ] || install_with_apt $need
	for server in $want; do
		install_with_apt "$server" || :
	done
	# shellcheck disable=SC2086
	need=$(missing $needed)
	[ ! "$need" ] || {
		say "still missing after the installation: $need"
		exit 1
	}
fi

# shellcheck disable=SC2086
for server in $needed $optional; do
	path=$("find_$server") || path='not installed: the lab goes on without it'
	echo "$server: $path"
done
