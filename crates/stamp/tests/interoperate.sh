#!/bin/bash
# Runs `trunkline stamp` and stamp-suite 1.0.0 against each other, both ways, unauthenticated and authenticated, on the
# loopback, and fails if an answer is missing. Building stamp-suite takes minutes, so the tests do not do that.
#
#     cargo install --locked stamp-suite@1.0.0 --root /tmp/stamp-suite
#     crates/stamp/tests/interoperate.sh target/debug/trunkline /tmp/stamp-suite/bin/stamp-suite
set -eu
trunkline=$1 peer=$2
folder=$(mktemp -d)
trap 'kill "$reflector" 2>/dev/null; rm -rf "$folder"' EXIT
reflector=
key=$folder/key
printf '000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n' >"$key"
chmod 600 "$key"

reflect() {
    "$@" >"$folder/reflector" 2>&1 &
    reflector=$!
    sleep 1
}

stop() {
    kill -INT "$reflector"
    wait "$reflector" || true
}

# name, expected text, command
check() {
    name=$1 expected=$2
    shift 2
    "$@" >"$folder/sender" 2>&1 || true
    if ! grep -q "$expected" "$folder/sender"; then
        echo "$name: FAILED" && cat "$folder/sender" "$folder/reflector" && exit 1
    fi
    echo "$name: $(grep "$expected" "$folder/sender")"
}

for mode in unauthenticated authenticated; do
    ours=() theirs=()
    if [ "$mode" = authenticated ]; then
        ours=(--key "$key") theirs=(-A A --hmac-key-file "$key")
    fi
    reflect "$peer" --is-reflector --stateful-reflector --local-addr 127.0.0.1 --local-port 8627 "${theirs[@]}"
    for format in ntp ptp; do
        check "trunkline to stamp-suite, $mode, $format" "200 sent, 200 answered, 0 lost" \
            "$trunkline" stamp send 127.0.0.1:8627 --count 200 --interval 5ms --size 300 --timestamps $format "${ours[@]}"
    done
    stop
    reflect "$trunkline" stamp reflect --listen 127.0.0.1:8628 "${ours[@]}"
    for format in NTP PTP; do
        check "stamp-suite to trunkline, $mode, $format" "Packets received: 200" \
            "$peer" --remote-addr 127.0.0.1 --remote-port 8628 --count 200 --send-delay 5 -K $format "${theirs[@]}"
    done
    # Its sender reports the U flag of extensions that ours does not know: one, and the HMAC of extensions.
    check "stamp-suite to trunkline, $mode, extension" "[12]U]" \
        "$peer" --remote-addr 127.0.0.1 --remote-port 8628 --count 1 -R --timestamp-info "${theirs[@]}"
    stop
done
