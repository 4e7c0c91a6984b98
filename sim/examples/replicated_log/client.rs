//! A client: one request after the other, each asked until it is answered.

use core::time::Duration;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use ringway_sim::program::{Env, TcpStream};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::cluster::Oracle;
use crate::node::CLIENTS;

/// How long it waits for an answer before it asks again, on a new connection.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn client(env: Env, primary: IpAddr, requests: u64, oracle: Rc<Oracle>) {
    let mut stream = None;
    for request in 0..requests {
        loop {
            match env.timeout(PATIENCE, ask(&env, primary, &mut stream, request)).await {
                Ok(Ok(index)) => {
                    oracle.acknowledged(env.now(), request, index);
                    break;
                }
                Ok(Err(error)) => oracle.tell(env.now(), format!("request {request}: {error}; asks again")),
                Err(_) => oracle.tell(env.now(), format!("request {request}: no answer; asks again")),
            }
            stream = None;
            env.sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Asks once, on the connection that there is, or on a new one.
async fn ask(env: &Env, primary: IpAddr, stream: &mut Option<BufReader<TcpStream>>, request: u64) -> io::Result<usize> {
    if stream.is_none() {
        *stream = Some(BufReader::new(TcpStream::connect(env.net(), (primary, CLIENTS)).await?));
    }
    let Some(stream) = stream else { return Err(io::ErrorKind::NotConnected.into()) };
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    answer.trim().parse().map_err(|_| io::ErrorKind::UnexpectedEof.into())
}
