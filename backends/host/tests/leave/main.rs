//! Connections that leave a ring for the kernel and come back, with a kernel as their peer that knows nothing of it: its stream goes on to the byte, and it sees
//! no reset. Our ring stands on an ordinary interface beside the kernel that takes its connections over.

mod bpf;
mod device;
mod moves;
mod namespaces;
mod pair;
mod refusals;
mod silence;
mod states;
mod world;
