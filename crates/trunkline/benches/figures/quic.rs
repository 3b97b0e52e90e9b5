//! `full` over QUIC, beside the least program with `quinn`: a stream, no messages, nothing measured but the time.
//!
//! This program starts itself twice, as [`SERVE`] and as [`SEND`], so that the ends are as far apart as two hosts' are.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::rustls::{self, RootCertStore};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};

use crate::Outcome;
use crate::contest::{self, Figure, Row, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::{self, Peers, Server, free_port};

/// First argument of the end that receives; then its port and the file for its certificate.
pub const SERVE: &str = "serve-quic";
/// First argument of the end that sends; then the port, the file, and for how many seconds.
pub const SEND: &str = "send-quic";

/// Bytes of a message, and of a write of the plain program.
const SIZE: usize = 65_536;
/// The name in the certificate.
const NAME: &str = "localhost";

/// Received rates; the peer is the plain program.
pub fn quic(options: &Options, _peers: &Peers, _tap: bool) -> Outcome<Vec<Row>> {
    let seconds = options.seconds;
    let mut rows = Vec::new();
    for mtu in [1452, 8972] {
        let connection = format!(
            "protocol = quic (mtu = {mtu} B); test = full (messagesize = {SIZE}); duration = {seconds} s;"
        );
        let trunkline = move |_| {
            let c = ours::run(&connection, free_port()?, 1, &[], &[])?;
            Ok(vec![Some(ours::number(&c, "received_bps")? / 1e9)])
        };
        let tools = [
            Tool { name: "trunkline", every: 1, run: Box::new(trunkline) },
            Tool { name: "plain quinn", every: 1, run: Box::new(move |_| plain(seconds, mtu)) },
        ];
        let figures = [Figure("received, Gb/s", 2, Target::Ratio(0.9))];
        rows.extend(contest::hold(&format!("full, QUIC {mtu} B"), &figures, &tools, options.rounds)?);
    }
    Ok(rows)
}

/// Runs both ends of the plain program; returns the rate in Gb/s.
fn plain(seconds: u64, mtu: u16) -> Outcome<Vec<Option<f64>>> {
    let program = env::current_exe().map_err(|e| format!("quinn: {e}"))?;
    let program = program.to_str().ok_or("quinn: a path that is no text")?;
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/figures-quic.der");
    let (port, seconds, mtu) = (free_port()?.to_string(), seconds.to_string(), mtu.to_string());
    let _server = Server::start(&[program, SERVE, &port, file, &mtu])?;
    let reply = peers::run(&[program, SEND, &port, file, &mtu, &seconds])?;
    let bps: f64 = reply.trim().parse().map_err(|_| format!("quinn: cannot read `{reply}`"))?;
    Ok(vec![Some(bps / 1e9)])
}

/// Receives one stream.
pub fn serve(arguments: &[String]) -> Outcome<()> {
    let (address, file, mtu) = parse(arguments)?;
    let served = async {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?;
        fs::write(file, certificate.der())?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let mut config = ServerConfig::with_single_cert(vec![certificate.der().clone()], key)?;
        config.transport_config(transport(mtu));
        let endpoint = endpoint(Some(config), address, mtu)?;
        let connection = endpoint.accept().await.ok_or("no client")?.await?;
        let mut stream = connection.accept_uni().await?;
        while stream.read_chunk(usize::MAX, true).await?.is_some() {}
        connection.closed().await;
        Ok(())
    };
    block_on(served)
}

/// Sends for some seconds, and prints the rate in b/s until everything was acknowledged.
pub fn send(arguments: &[String]) -> Outcome<()> {
    let (address, file, mtu) = parse(arguments)?;
    let seconds = arguments.get(3).and_then(|s| s.parse().ok()).ok_or("quinn: no seconds")?;
    let sent = async {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(fs::read(file)?))?;
        let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
        config.transport_config(transport(mtu));
        let endpoint = endpoint(None, (Ipv4Addr::LOCALHOST, 0).into(), mtu)?;
        let connection = endpoint.connect_with(config, address, NAME)?.await?;
        let mut stream = connection.open_uni().await?;
        let (begin, data, mut bytes) = (Instant::now(), vec![7; SIZE], 0u64);
        while begin.elapsed() < Duration::from_secs(seconds) {
            stream.write_all(&data).await?;
            bytes += SIZE as u64;
        }
        stream.finish()?;
        stream.stopped().await?;
        println!("{}", bytes as f64 * 8.0 / begin.elapsed().as_secs_f64());
        connection.close(0u32.into(), &[]);
        endpoint.wait_idle().await;
        Ok(())
    };
    block_on(sent)
}

fn endpoint(
    server: Option<ServerConfig>,
    address: SocketAddr,
    mtu: u16,
) -> Result<Endpoint, Box<dyn std::error::Error>> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(mtu.max(1472))?;
    Ok(Endpoint::new(config, server, UdpSocket::bind(address)?, Arc::new(TokioRuntime))?)
}

fn transport(mtu: u16) -> Arc<TransportConfig> {
    let mut discovery = quinn::MtuDiscoveryConfig::default();
    discovery.upper_bound(mtu);
    let mut transport = TransportConfig::default();
    transport.mtu_discovery_config(Some(discovery));
    Arc::new(transport)
}

/// Runs on one thread, as an end of Trunkline does.
fn block_on(task: impl Future<Output = Result<(), Box<dyn std::error::Error>>>) -> Outcome<()> {
    // The provider is the only one that is compiled in; an earlier installation is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("quinn: {e}"))?;
    runtime.block_on(task).map_err(|e| format!("quinn: {e}"))
}

/// Parses the address, the file of the certificate, and the MTU.
fn parse(arguments: &[String]) -> Outcome<(SocketAddr, &str, u16)> {
    let [port, file, mtu, ..] = arguments else { return Err("quinn: no port, file and MTU".into()) };
    let port = port.parse().map_err(|_| format!("quinn: `{port}` is no port"))?;
    let mtu = mtu.parse().map_err(|_| format!("quinn: `{mtu}` is no MTU"))?;
    Ok(((Ipv4Addr::LOCALHOST, port).into(), file, mtu))
}
