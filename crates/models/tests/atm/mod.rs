mod agree;
mod common;
mod credits;
mod fast_path;
mod link;
mod rates;
mod reference;
