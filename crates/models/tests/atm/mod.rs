mod agree;
mod common;
mod credits;
mod fast_path;
mod link;
mod queue;
mod rates;
mod reference;
