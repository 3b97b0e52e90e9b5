mod agree;
mod common;
mod fast_path;
mod link;
mod reference;
