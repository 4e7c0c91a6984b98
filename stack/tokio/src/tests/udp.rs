use std::io::{ErrorKind, Result};
use std::net::{Ipv6Addr, SocketAddr};

use super::{A, A6, B, B6, PORT, Pair};
use crate::UdpSocket;

#[test]
fn datagrams_there_and_back() {
    let pair = Pair::new();
    let client = async {
        let socket = UdpSocket::bind(&pair.a, (A, 0)).await?;
        socket.send_to(b"ping", PORT).await?;
        let mut into = [0; 16];
        let (n, from) = socket.recv_from(&mut into).await?;
        Result::Ok((into[..n].to_vec(), from))
    };
    let server = async {
        let socket = UdpSocket::bind(&pair.b, PORT).await?;
        let mut into = [0; 16];
        let (n, from) = socket.recv_from(&mut into).await?;
        socket.send_to(&into[..n], from).await?;
        Result::Ok(from.ip())
    };
    let (client, server) = pair.run(client, server);
    assert_eq!(client.unwrap(), (b"ping".to_vec(), SocketAddr::from(PORT)));
    assert_eq!(server.unwrap(), A);
}

#[test]
fn datagrams_over_ipv6_there_and_back() {
    let pair = Pair::at(A6.into(), B6.into());
    let client = async {
        let socket = UdpSocket::bind(&pair.a, (Ipv6Addr::UNSPECIFIED, 0)).await?;
        socket.connect((B6, 80)).await?;
        socket.send(b"ping").await?;
        let mut into = [0; 16];
        let n = socket.recv(&mut into).await?;
        Result::Ok(into[..n].to_vec())
    };
    let server = async {
        let socket = UdpSocket::bind(&pair.b, (B6, 80)).await?;
        let mut into = [0; 16];
        let (n, from) = socket.recv_from(&mut into).await?;
        socket.send_to(&into[..n], from).await?;
        Result::Ok(from.ip())
    };
    let (client, server) = pair.run(client, server);
    assert_eq!((client.unwrap(), server.unwrap()), (b"ping".to_vec(), A6.into()));
}

#[test]
fn who_has_no_address_of_the_peers_ip_version_cannot_speak_to_it() {
    let pair = Pair::new();
    let (kinds, ()) = pair.run(
        async {
            // (The last one's address would do, but for the net's, from which it sends.)
            let mut kinds = Vec::new();
            for (local, peer) in
                [((A, 1).into(), (B6, 9).into()), ((A6, 2).into(), (B, 9).into()), ((Ipv6Addr::UNSPECIFIED, 3).into(), (B6, 9).into())]
            {
                let (local, peer): (SocketAddr, SocketAddr) = (local, peer);
                let socket = UdpSocket::bind(&pair.a, local).await.unwrap();
                kinds.push(socket.send_to(b"x", peer).await.unwrap_err().kind());
                kinds.push(socket.connect(peer).await.unwrap_err().kind());
            }
            kinds
        },
        async {},
    );
    assert_eq!(kinds, [ErrorKind::Unsupported; 6]);
}

#[test]
fn a_connected_socket_has_one_peer_and_hears_that_nobody_is_there() {
    let pair = Pair::new();
    let (kind, ()) = pair.run(
        async {
            let socket = UdpSocket::bind(&pair.a, (A, 0)).await.unwrap();
            assert_eq!(socket.send(b"x").await.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
            socket.connect(PORT).await.unwrap();
            assert_eq!(socket.peer_addr().unwrap(), SocketAddr::from(PORT));
            socket.send(b"x").await.unwrap();
            socket.recv(&mut [0; 4]).await.unwrap_err().kind()
        },
        async {},
    );
    assert_eq!(kind, ErrorKind::ConnectionRefused);
}

#[test]
fn several_tasks_may_wait_for_one_socket() {
    let pair = Pair::new();
    let socket = pair.run(UdpSocket::bind(&pair.b, (B, 9)), async {}).0.unwrap();
    let receive = async || {
        let mut into = [0; 4];
        socket.recv_from(&mut into).await.map(|_| into[0])
    };
    let (sent, got) = pair.run(
        async {
            let sender = UdpSocket::bind(&pair.a, (A, 0)).await?;
            sender.send_to(&[1], (B, 9)).await?;
            sender.send_to(&[2], (B, 9)).await
        },
        async { tokio::join!(receive(), receive()) },
    );
    sent.unwrap();
    let (first, second) = (got.0.unwrap(), got.1.unwrap());
    assert_eq!((first.min(second), first.max(second)), (1, 2), "each got one");
}
