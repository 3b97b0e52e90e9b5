# For dis.ns: a level-1 converter. Usage: dis-level1.sh CENTRAL
address() { getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }'; }
here=$(address "$TRUNKLINE_HOST")
exec trunkline converter level1 --central "$(address "$1"):3450" --listen "$here:3457" --interface "$here"
