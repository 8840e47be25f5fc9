#!/bin/sh
# Fetches axe-core, which checks the accessibility of pages, and prints the path of its axe.min.js. It is not in this
# repository, because it is large, and under another licence (MPL 2.0).
#
#	STOCK_AXE=$(sh loadtest/internal/browsertest/axe.sh) go test ./loadtest/...
set -eu
version=4.14.0
sum=f564d9c448ec67b6f5dd31fc24f99b576cfc0876e5f34ff6866dd73c41b826035d40b2bcd480515e64b11df3003a44aa41e4714ffd1dc0d0f3d863a6df3ce971

dir=${XDG_CACHE_HOME:-$HOME/.cache}/stock/axe-core-$version
if [ ! -e "$dir/axe.min.js" ]; then
	mkdir -p "$dir"
	(
		cd "$dir"
		npm pack --silent "axe-core@$version" >/dev/null
		echo "$sum  axe-core-$version.tgz" | sha512sum --check --status || {
			echo "$0: axe-core-$version.tgz is not the file that was expected" >&2
			exit 1
		}
		tar -xzf "axe-core-$version.tgz" --strip-components=1 package/axe.min.js
	)
fi
echo "$dir/axe.min.js"
