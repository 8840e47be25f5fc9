#!/bin/sh
# Installs the servers that the tests and the lab run: MySQL or MariaDB, Redis or Valkey, nginx, etcd, ZooKeeper and
# PostgreSQL; and Python with its clients of MySQL and PostgreSQL, for the example in the README. What is installed
# already stays as it is. The script leaves no new service running or enabled, and does not touch services that existed
# before. etcd, ZooKeeper, PostgreSQL and Python are optional: if one of them cannot be installed, the script says so and
# succeeds, unless it is called with --all. That also installs PHP, Node and Java with their clients of MySQL, for tests
# with services in these languages, and curl, for tests with clients.
#
# On Debian and Ubuntu, mariadb-server-core, redis-tools and libzookeeper-java contain the servers without their
# services: redis-check-rdb is redis-server under another name, and the package zookeeper would add a user and a Java
# with a desktop. nginx, etcd and PostgreSQL come only with a service, which is kept from starting and then disabled.
set -eu

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/libexec:/opt/homebrew/bin:/opt/homebrew/sbin
export PATH

# first NAME... prints the path of the first program that is installed.
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
# postgres.go looks in the same places.
find_postgres() {
	first postgres || ls -d /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres \
		/opt/homebrew/opt/postgresql@*/bin/postgres 2>/dev/null | sort -V | tail -n 1 | grep .
}
# Debian's packages are for Debian's Python.
find_python() { /usr/bin/python3 -c 'import pymysql, psycopg2' 2>/dev/null && echo /usr/bin/python3; }
find_curl() { first curl; }
# The module compiles a source file that java is told to run.
find_java() { java --list-modules 2>/dev/null | grep -q '^jdk\.compiler@' && first java; }
find_node() { NODE_PATH=/usr/share/nodejs node -e "require('mysql')" 2>/dev/null && first node; }
find_jdbc() { [ -e /usr/share/java/mariadb-java-client.jar ] && echo /usr/share/java/mariadb-java-client.jar; }
find_php() { php -r 'exit((int)!in_array("mysql", PDO::getAvailableDrivers()));' >/dev/null 2>&1 && first php; }

# ZooKeeper consists of jars and needs Java. zookeeper.go looks in the same places.
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

# missing SERVER... prints the servers that are not installed.
missing() {
	for server; do
		"find_$server" >/dev/null || printf '%s ' "$server"
	done
}

say() { echo "servers: $*" >&2; }

# available PACKAGE tests whether apt can install the package.
available() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

# packages SERVER... prints the packages to install. It fails if apt knows no package for one of the servers. Each
# server has alternatives, of which the first that apt knows is taken. Packages joined by a comma belong together.
packages() {
	for server; do
		case $server in
		mysql)
			# In older releases, the version is part of the name.
			versioned=$(apt-cache pkgnames mariadb-server-core- 2>/dev/null | sort -V | tail -n 1)
			names="mariadb-server-core $versioned mysql-server-core mysql-server-core-8.0"
			;;
		redis) names="redis-tools valkey-tools" ;;
		nginx) names=nginx ;;
		etcd) names="etcd-server etcd" ;;
		postgres) names=postgresql ;;
		python) names=python3-pymysql,python3-psycopg2 ;;
		php) names=php-cli,php-mysql ;;
		node) names=node-mysql ;; # which needs nodejs
		jdbc) names=libmariadb-java ;;
		curl) names=curl ;;
		java) names=default-jre-headless ;;
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
	# needrestart would restart services whose libraries have been upgraded.
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1
}

policy=/usr/sbin/policy-rc.d
mark='# Temporary: made by install.sh of stock, which removes it.'
log=
updated=                         # not empty after apt-get update
services='nginx etcd postgresql' # that the packages install
ours=                            # those of them that did not exist before

# Package scripts run policy-rc.d before they start a service; exit code 101 forbids it. An existing policy-rc.d is
# kept.
forbid_services() {
	if [ -f $policy ] && grep -qxF "$mark" $policy; then
		rm -f $policy # an installation was killed
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

# restore undoes forbid_services and disables the services that this installation added.
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

# update_lists updates the package lists. It fails when called again, since there would be nothing new.
update_lists() {
	[ ! "$updated" ] || return 1
	updated=yes
	say "apt-get update"
	apt update
}

# install_with_apt SERVER... expects the caller to call forbid_services before and restore after it.
install_with_apt() {
	# The package lists may be missing, or name files that no longer exist.
	if ! chosen=$(packages "$@"); then
		update_lists || :
		chosen=$(packages "$@") || {
			say "apt knows no package for: $*"
			return 1
		}
	fi
	# shellcheck disable=SC2086 # one word per package
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
	say "not installed: $*. This script installs packages on Debian and Ubuntu only. Elsewhere, run one of"
	cat >&2 <<-END
		  Fedora, RHEL   sudo dnf install mariadb-server valkey nginx             (or redis)
		  openSUSE       sudo zypper install mariadb redis nginx
		  Arch           sudo pacman -S mariadb valkey nginx etcd postgresql
		  Alpine         sudo apk add mariadb redis nginx
		  macOS          brew install mysql redis nginx etcd zookeeper postgresql@17
	END
	say "only the programs are needed: do not start or enable any service"
	say "optional: etcd from https://etcd.io/docs/latest/install; Java and ZooKeeper, unpacked from" \
		"https://zookeeper.apache.org/releases.html, with its directory in ZOOKEEPER_HOME; for" \
		"the example in the README, /usr/bin/python3 -m pip install pymysql psycopg2-binary"
}

needed='mysql redis nginx'
optional='etcd zookeeper postgres python'
if [ "${1:-}" = --all ]; then
	needed="$needed $optional php node curl java jdbc" optional=
fi

# shellcheck disable=SC2086 # one word per server, here and below
need=$(missing $needed)
want=
# shellcheck disable=SC2086
for server in $(missing $optional); do
	# If the package lists have nginx, they are up to date, and a package that they lack does not exist.
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
		[ "$need" ] || quietly=-n # do not ask for a password to install optional servers
		# shellcheck disable=SC2086
		sudo $quietly ${JAVA_HOME:+JAVA_HOME="$JAVA_HOME"} ${ZOOKEEPER_HOME:+ZOOKEEPER_HOME="$ZOOKEEPER_HOME"} \
			sh "$0" "$@" && exit
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
	path=$("find_$server") || path='not installed: the lab runs without it'
	case $path in *-check-rdb) path="redis-server, installed as $path" ;; esac
	echo "$server: $path"
done
