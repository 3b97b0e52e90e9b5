# For nginx.ns: gets the file `data` by each family, when the server answers.
for family in 4 6; do
    curl -sS "-$family" --retry 20 --retry-delay 1 --retry-connrefused -w '%{json}\n' -o "received-$family" http://server:8080/data || exit
done
