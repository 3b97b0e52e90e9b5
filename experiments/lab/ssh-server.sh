# For ssh.ns: sshd as the user `daemon` of a namespace, and so without privileges. It wants an absolute path.
set -e
ssh-keygen -q -t ed25519 -N '' -f host_key
sshd=$(PATH=$PATH:/usr/sbin command -v sshd)
exec unshare --user --map-user=daemon --map-group=daemon "$sshd" -D -e -f sshd_config \
    -o HostKey="$PWD/host_key" -o AuthorizedKeysFile="$PWD/authorized_keys"
