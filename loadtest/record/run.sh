#!/bin/sh
# Installs shops from the registries into out/record, and explores the checkout of each: two buyers, every interleaving
# with at most one preemption, and for some of them also one buyer after the other with a fault at every point. Then it
# judges each under a small load. Give the names of shops, or none for all.
#
# Exit status: 0 the outcomes are those of docs/track-record.md; 1 one is not, or there is none, as the messages say;
# 2 something is missing.
set -eu
cd "$(dirname "$0")/../.."

# The shops, and the exit status of loadtest explore without faults and with one: 1 if the stock does not agree with the
# answers; -: it is not explored. What follows a slash is the database, or where the shop keeps its lock.
shops='medusa-2.21.2/memory 1 -
medusa-2.21.2/postgres 0 -
medusa-2.21.2/redis 0 -
oscar-4.2.1 1 0
oscar-4.2.1/postgres 1 -
vendure-3.6.3 1 -
vendure-3.8.0-minor-202609120217 1 -
pretix-4.20.4/mysql 0 -
pretix-4.20.4/redis 1 -'

missing() {
	echo "$0: $1" >&2
	exit 2
}

install_venv() { # DIRECTORY PACKAGE...
	dir=$1
	shift
	python3 -m venv "$dir/venv" || missing "python3 with venv is needed: apt-get install python3-venv"
	"$dir/venv/bin/pip" install -q "$@" pymysql==1.2.4 waitress==3.0.2 || missing "$1 cannot be installed from PyPI"
}

install_oscar() { # DIRECTORY VERSION
	install_venv "$1" "django-oscar==$2" sorl-thumbnail==13.4.0 easy-thumbnails==2.10.1 psycopg2-binary==2.9.10
}

install_pretix() {
	install_venv "$1" "pretix==$2"
}

install_npm() { # DIRECTORY, with package.json in it
	command -v node >/dev/null && command -v npm >/dev/null || missing "node and npm are needed"
	(cd "$1" && npm install --no-audit --no-fund --loglevel=error) || missing "$1 cannot be installed from npm"
}

install_medusa() {
	printf '{"private": true, "dependencies": {"@medusajs/medusa": "%s", "@medusajs/framework": "%s",
		"@medusajs/cli": "%s"}}\n' "$2" "$2" "$2" >"$1/package.json"
	install_npm "$1"
}

install_vendure() {
	# A prerelease of the core asks for one of @vendure/common, which is not in the registry.
	printf '{"private": true, "dependencies": {"@vendure/core": "%s", "mysql2": "3.24.6"},
		"overrides": {"@vendure/common": "%s"}}\n' "$2" "$(echo "$2" | sed 's/^3\.8.*/3.7.3/')" >"$1/package.json"
	install_npm "$1"
}

explore() { # DIRECTORY EXIT-STATUS FLAG...
	to=$1 want=$2 status=0
	shift 2
	rm -rf "$to" # the results of an earlier run
	[ "$want" != - ] || return 0
	bin/loadtest explore --service "$out/shop.yaml" --workloads last --lanes 2 --out "$to" "$@" || status=$?
	[ "$status" = "$want" ] || {
		echo "$0: $to: exit status $status, not $want" >&2
		return 1
	}
}

try() { # NAME EXIT-STATUS EXIT-STATUS-WITH-A-FAULT
	release=${1%%/*} shop=${1%%-*}
	version=${release#*-} home=out/record/$release out=out/record/$1
	mkdir -p "$out"
	cp "loadtest/record/$shop/"*.[jp]* "$home"
	description=loadtest/record/$shop/${1#*/}.yaml
	[ -e "$description" ] || description=loadtest/record/$shop/shop.yaml
	sed "s/VERSION/$version/; s/WAY/${1#*/}/" "$description" >"$out/shop.yaml"
	if [ ! -e "$home/installed" ]; then
		echo "installing $release …" >&2
		"install_$shop" "$home" "$version"
		touch "$home/installed"
	fi
	explore "$out/explored" "$2" --faults 0 --preemptions 1 --until-refuted || differs=1
	explore "$out/faults" "$3" --faults 1 --preemptions 0 || differs=1
	rm -rf "$out/load"
	# What a load finds depends on the machine, so its status is not compared.
	bin/loadtest run --quick --service "$out/shop.yaml" --out "$out/load" || [ $? != 2 ] || differs=1
}

[ -x bin/loadtest ] || missing "bin/loadtest is missing: run make build"
differs=0
[ $# -gt 0 ] || set -- $(echo "$shops" | cut -d' ' -f1)
for name; do
	expected=$(echo "$shops" | sed -n "s|^$name ||p")
	[ -n "$expected" ] || missing "no shop is named $name: the names are $(echo "$shops" | cut -d' ' -f1 | tr '\n' ' ')"
	try "$name" $expected # the two exit statuses
done
exit $differs
