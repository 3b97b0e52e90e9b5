# For dis.ns: a central converter. Usage: dis-central.sh LEVEL1 HOST
address() { getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }'; }
here=$(address "$TRUNKLINE_HOST")
exec trunkline converter central --level1 "1=$(address "$1"):3457" --hosts "$(address "$2"):3459" \
    --listen-level1 "$here:3450" --listen-hosts "$here:3458"
