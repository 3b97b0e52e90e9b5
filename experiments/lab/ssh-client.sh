# For ssh.ns: copies `data` to `received`, when the server answers.
set -e
ssh-keygen -q -t ed25519 -N '' -f user_key
cp user_key.pub authorized_keys
until scp -F none -i user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -P 2222 \
    data "daemon@server:$PWD/received"; do
    sleep 0.2
done
