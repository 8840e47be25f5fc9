#!/bin/sh
# Installs the servers that the tests and the lab start as their own children: MySQL or MariaDB, Redis or Valkey, nginx.
# What is there already stays as it is. No system service is left running or enabled, and none that existed is touched.
#
# On Debian and Ubuntu, mariadb-server-core and redis-tools carry the servers without their services: redis-check-rdb is
# redis-server under another name. nginx comes only with its service, so that one is kept from starting and is disabled.
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

missing() {
	for server in mysql redis nginx; do
		"find_$server" >/dev/null || printf '%s ' $server
	done
}

say() { echo "servers: $*" >&2; }

# available PACKAGE says whether apt can install it.
available() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

# packages SERVER... prints the packages to install; it fails where apt knows none for one of them.
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
		esac
		found=
		for name in $names; do
			if available "$name"; then
				found=$name
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
nginx_is_ours=

# Package scripts ask policy-rc.d before they start a service; 101 forbids it. One that exists is left alone.
forbid_services() {
	if [ -f $policy ] && grep -qxF "$mark" $policy; then
		rm -f $policy # left by an installation that was killed
	fi
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >$policy
		chmod 755 $policy
	fi
	for unit in /etc/init.d/nginx /lib/systemd/system/nginx.service /usr/lib/systemd/system/nginx.service \
		/etc/systemd/system/nginx.service; do
		[ ! -e $unit ] || return 0
	done
	nginx_is_ours=yes
}

# restore undoes forbid_services and disables the nginx service, if this installation brought it.
restore() {
	if [ "$nginx_is_ours" ] && [ -e /etc/init.d/nginx ]; then
		if [ -d /run/systemd/system ]; then
			systemctl disable --now nginx.service >>"$log" 2>&1 || :
		else
			rm -f /etc/systemd/system/multi-user.target.wants/nginx.service
			/etc/init.d/nginx stop >>"$log" 2>&1 || :
		fi
		update-rc.d nginx disable >>"$log" 2>&1 || :
	fi
	if [ -f $policy ] && grep -qxF "$mark" $policy; then
		rm -f $policy
	fi
	rm -f "$log"
}

install_with_apt() {
	log=$(mktemp)
	trap restore EXIT
	trap 'exit 1' HUP INT TERM
	forbid_services
	# The package lists may be absent, or so old that the files they name are gone.
	if ! chosen=$(packages "$@"); then
		say "apt-get update"
		apt update || :
		chosen=$(packages "$@") || {
			tail -n 20 "$log" >&2
			say "apt knows no package for: $*"
			return 1
		}
	fi
	# shellcheck disable=SC2086 # one word a package
	set -- $chosen
	say "apt-get install" "$@"
	apt install --no-install-recommends "$@" || {
		apt update && apt install --no-install-recommends "$@"
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
		  Arch           sudo pacman -S mariadb valkey nginx
		  Alpine         sudo apk add mariadb redis nginx
		  macOS          brew install mysql redis nginx
	END
	say "only the programs are needed: no service has to be started or enabled"
}

need=$(missing)
if [ "$need" ]; then
	# shellcheck disable=SC2086 # one word a server
	if ! command -v apt-get >/dev/null; then
		by_hand $need
		exit 1
	elif [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || {
			say "not installed: $need- run this script as root: sh $0"
			exit 1
		}
		sudo sh "$0"
		exit
	fi
	# shellcheck disable=SC2086
	install_with_apt $need
	need=$(missing)
	[ ! "$need" ] || {
		say "still missing after the installation: $need"
		exit 1
	}
fi

echo "mysql: $(find_mysql)"
echo "redis: $(find_redis)"
echo "nginx: $(find_nginx)"
