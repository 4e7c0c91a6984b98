//! What the VMA Extra API promises of the stack and its devices, on every device that can be opened here: the cases of
//! [`ringway_conformance::extra`], which `promises/*.toml` name as `sim.rs::case` and `shm.rs::case`.

#[macro_use]
mod cases;
mod flawed;
mod shm;
mod sim;
