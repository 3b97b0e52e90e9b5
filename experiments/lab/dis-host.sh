# For dis.ns: a program that speaks DIS, and the host interface of the converter. Usage: dis-host.sh CENTRAL
address() { getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }'; }
here=$(address "$TRUNKLINE_HOST")
trunkline converter host --central "$(address "$1"):3458" --listen "$here:3459" --interface "$here" \
    --dis 127.0.0.1:3000 --dis-to 127.0.0.1:3001 &
exec python3 dis.py
