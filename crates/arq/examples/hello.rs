//! Sends a message to a listener and receives the reply, both in this process.

use trunkline_arq::Options;
use trunkline_arq::socket::{Connection, Listener};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = Listener::bind("127.0.0.1:0", &Options::default())?;
    let client = Connection::connect(listener.address(), &Options::default())?;

    client.send(7, b"hello")?; // on channel 7
    let server = listener.accept()?;
    let (channel, message) = server.recv_any()?;
    server.send(channel, &message)?;

    assert_eq!(&client.recv(7)?[..], b"hello");
    println!("channel {channel}: {}", String::from_utf8_lossy(&message));
    Ok(())
}
