//! Stories about two connections and the wire between them.

mod ack_policy;
mod arrivals;
mod close;
mod congestion;
mod data;
mod ecn;
mod fast_open;
mod handshake;
mod hostile;
mod loss;
mod moves;
mod offload;
mod pair;
mod path;
mod prediction;
mod properties;
mod queues;
mod reneging;
mod requirements;
mod tail;
mod window;
