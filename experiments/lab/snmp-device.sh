# For snmp.ns: an agent, and traffic to count. Then it waits for polls that do not come from the agent's cache, which lasts 15 s.
SNMPCONFPATH=. SNMP_PERSISTENT_DIR=. snmpd -f -Lo -C -c snmpd.conf -I -smux &
until iperf3 -c sink -n 2M; do
    sleep 0.2
done
sleep 18
