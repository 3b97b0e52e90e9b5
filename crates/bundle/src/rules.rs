//! Rules that map DIS PDUs to message addresses and choose the addresses to which a host subscribes.
//!
//! A rule selects PDUs by exercise, type, family and site. Its target is an address, or the address of the [`Grid`]
//! cell in which an Entity State is located. The first matching rule applies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use trunkline_units::Span;

use crate::wire::dis::Pdu;

/// The largest number of cells in a grid.
pub const MAX_CELLS: usize = 65_536;

/// Matching numbers: any in these ranges, or all if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<RangeInclusive<u16>>);

impl Numbers {
    fn contains(&self, number: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(&number))
    }
}

/// The destination of PDUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// This message address.
    Address(u32),
    /// The address of the cell. PDUs without a location in the grid do not match the rule.
    Grid(Grid),
    /// No destination: the PDU is dropped.
    Drop,
}

/// A rule: conditions and a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Exercise identifiers.
    pub exercise: Numbers,
    /// PDU types.
    pub kind: Numbers,
    /// Protocol families.
    pub family: Numbers,
    /// Sites of the PDU's entity. A PDU without a site matches only an empty list.
    pub site: Numbers,
    /// Whether matching PDUs have priority, whatever their address. Format 2 only.
    pub priority: bool,
    /// The longest wait of a priority message in each converter, if given.
    pub max_wait: Option<Span>,
    /// The destination.
    pub target: Target,
}

impl Rule {
    fn address(&self, pdu: Pdu<'_>) -> Option<Option<u32>> {
        let matches = self.exercise.contains(pdu.exercise().into())
            && self.kind.contains(pdu.kind().into())
            && self.family.contains(pdu.family().into())
            && (self.site.0.is_empty() || pdu.site().is_some_and(|site| self.site.contains(site)));
        if !matches {
            return None;
        }
        match &self.target {
            Target::Address(address) => Some(Some(*address)),
            Target::Grid(grid) => grid.address(grid.cell(pdu.location()?)?).map(Some),
            Target::Drop => Some(None),
        }
    }
}

/// A grid of equal cells, each with a message address, along up to three axes from an origin. Cells are numbered
/// along the first axis first.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The address of the first cell.
    pub first: u32,
    /// The difference between the addresses of two consecutive cells: 2 with pairs.
    pub step: u16,
    /// Meters from the center of the earth, in world coordinates (IEEE 1278.1).
    pub origin: [f64; 3],
    /// Unit vectors.
    pub axes: Vec<[f64; 3]>,
    /// The number of cells along each axis.
    pub cells: Vec<u32>,
    /// The edge length of a cell in meters.
    pub size: f64,
}

/// The reason why a grid is invalid.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidGrid {
    /// It has no axis, more than three, or no cell count for one of them.
    #[error("a grid needs 1 to 3 axes with at least 1 cell each")]
    Axes,
    /// The cell size is not positive and finite.
    #[error("the cell size of a grid must be more than 0 meters")]
    Size,
    /// The origin is not a location.
    #[error("the origin of a grid must be a location")]
    Origin,
    /// There are too many cells, or their addresses exceed 32 bits.
    #[error("a grid has at most 65536 cells, with addresses up to 4294967295")]
    Addresses,
}

impl Grid {
    /// Creates a grid along the axes of world coordinates.
    pub fn in_world(
        first: u32,
        step: u16,
        origin: [f64; 3],
        cells: Vec<u32>,
        size: f64,
    ) -> Result<Grid, InvalidGrid> {
        let axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let axes = axes.into_iter().take(cells.len()).collect();
        Grid { first, step, origin, axes, cells, size }.checked()
    }

    /// Creates a grid to the east and north on the tangent plane of the earth (WGS 84) at a latitude and longitude in
    /// degrees.
    pub fn on_earth(
        first: u32,
        step: u16,
        [latitude, longitude]: [f64; 2],
        cells: Vec<u32>,
        size: f64,
    ) -> Result<Grid, InvalidGrid> {
        /// The semi-major axis in meters, and the squared eccentricity.
        const EQUATOR: f64 = 6_378_137.0;
        const SQUARED: f64 = 6.694_379_990_141_317e-3;
        if !(-90.0..=90.0).contains(&latitude) || !(-360.0..=360.0).contains(&longitude) {
            return Err(InvalidGrid::Origin);
        }
        let radians = |degrees: f64| degrees * core::f64::consts::PI / 180.0;
        let (north, north_cos) = (libm::sin(radians(latitude)), libm::cos(radians(latitude)));
        let (east, east_cos) = (libm::sin(radians(longitude)), libm::cos(radians(longitude)));
        let normal = EQUATOR / libm::sqrt(1.0 - SQUARED * north * north);
        let origin =
            [normal * north_cos * east_cos, normal * north_cos * east, normal * (1.0 - SQUARED) * north];
        let axes = vec![[-east, east_cos, 0.0], [-north * east_cos, -north * east, north_cos]];
        Grid { first, step, origin, axes, cells, size }.checked()
    }

    fn checked(self) -> Result<Grid, InvalidGrid> {
        let axes = (1..=3).contains(&self.axes.len()) && self.axes.len() == self.cells.len();
        if !axes || self.cells.contains(&0) {
            return Err(InvalidGrid::Axes);
        }
        if !(self.size > 0.0 && self.size.is_finite()) {
            return Err(InvalidGrid::Size);
        }
        if !self.origin.iter().all(|metres| metres.is_finite()) {
            return Err(InvalidGrid::Origin);
        }
        let count = self.cells.iter().try_fold(1u64, |count, cells| count.checked_mul((*cells).into()));
        let last = count.filter(|count| *count <= MAX_CELLS as u64);
        let last = last.map(|count| u64::from(self.first) + (count - 1) * u64::from(self.step));
        match last {
            Some(last) if last <= u32::MAX.into() && self.step > 0 => Ok(self),
            _ => Err(InvalidGrid::Addresses),
        }
    }

    /// Returns the cell of a location along each axis, or `None` outside the grid.
    pub fn cell(&self, location: [f64; 3]) -> Option<[u32; 3]> {
        let mut cell = [0; 3];
        for ((axis, cells), at) in self.axes.iter().zip(&self.cells).zip(&mut cell) {
            let metres: f64 = (0..3).map(|n| (location[n] - self.origin[n]) * axis[n]).sum();
            let cells_from = metres / self.size;
            // The comparison is false for NaN.
            if !(cells_from >= 0.0 && cells_from < f64::from(*cells)) {
                return None;
            }
            // The cast rounds down. The minimum guards against rounding up at the end of the last cell.
            *at = (cells_from as u32).min(cells - 1);
        }
        Some(cell)
    }

    /// Returns the address of a cell, or `None` if there is no such cell.
    pub fn address(&self, cell: [u32; 3]) -> Option<u32> {
        let mut number = 0;
        for (at, cells) in cell.iter().zip(&self.cells).rev() {
            if at >= cells {
                return None;
            }
            number = number * cells + at;
        }
        self.first.checked_add(number * u32::from(self.step))
    }

    /// Returns the address of the last cell.
    fn last(&self) -> u32 {
        self.first + (self.cells.iter().product::<u32>() - 1) * u32::from(self.step)
    }

    /// Returns the addresses of a cell and of all cells up to `reach` cells away along each axis.
    pub fn neighbors(&self, cell: [u32; 3], reach: u32) -> BTreeSet<u32> {
        let span = |axis: usize| {
            let last = self.cells.get(axis).map_or(0, |cells| cells - 1);
            cell[axis].saturating_sub(reach)..=cell[axis].saturating_add(reach).min(last)
        };
        let mut found = BTreeSet::new();
        for x in span(0) {
            for y in span(1) {
                for z in span(2) {
                    found.extend(self.address([x, y, z]));
                }
            }
        }
        found
    }
}

/// An entity: site, application and entity number.
pub type Entity = [u16; 3];

/// The rules of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The rules in order of precedence.
    pub rules: Vec<Rule>,
    /// The address of PDUs that no rule matches; `None` drops them.
    pub default_address: Option<u32>,
    /// Addresses to which the host always subscribes.
    pub subscribed: Vec<RangeInclusive<u32>>,
    /// Entities around which the host subscribes to cells of all grids, with the distance in cells.
    pub around_entities: BTreeMap<Entity, u32>,
}

/// Maps every PDU to address 0 and subscribes to nothing.
impl Default for Rules {
    fn default() -> Rules {
        Rules {
            rules: Vec::new(),
            default_address: Some(0),
            subscribed: Vec::new(),
            around_entities: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// Returns address, priority and longest wait of a PDU, or `None` to drop it.
    pub fn address(&self, pdu: Pdu<'_>) -> Option<(u32, bool, Option<Span>)> {
        let found = self.rules.iter().find_map(|rule| Some((rule.address(pdu)?, rule)));
        match found {
            Some((address, rule)) => Some((address?, rule.priority, rule.max_wait)),
            None => Some((self.default_address?, false, None)),
        }
    }

    /// Returns the highest address in use, and whether a rule gives priority. Format 1 (classic) supports neither
    /// addresses above 65,535 nor priority rules.
    pub fn requirements(&self) -> (u32, bool) {
        let last = |target: &Target| match target {
            Target::Address(address) => *address,
            Target::Grid(grid) => grid.last(),
            Target::Drop => 0,
        };
        let targets = self.rules.iter().map(|rule| last(&rule.target));
        let addresses = self.subscribed.iter().map(|range| *range.end());
        let highest = targets.chain(addresses).chain(self.default_address).max();
        (highest.unwrap_or(0), self.rules.iter().any(|rule| rule.priority))
    }

    fn grids(&self) -> impl Iterator<Item = &Grid> {
        self.rules.iter().filter_map(|rule| match &rule.target {
            Target::Grid(grid) => Some(grid),
            _ => None,
        })
    }
}

/// The cells around entities to which a host subscribes while they move.
#[derive(Debug, Default)]
pub struct EntityTracker {
    seen: BTreeMap<Entity, LastPosition>,
}

/// The last known position of an entity.
#[derive(Debug)]
struct LastPosition {
    /// Its cell in each grid.
    cells: Vec<Option<[u32; 3]>>,
    /// The addresses of the surrounding cells.
    addresses: BTreeSet<u32>,
}

impl EntityTracker {
    /// Observes a PDU of either direction; returns whether the subscribed cells may have changed.
    pub fn observe(&mut self, rules: &Rules, pdu: Pdu<'_>) -> bool {
        let Some((entity, reach)) =
            pdu.entity().and_then(|entity| Some((entity, *rules.around_entities.get(&entity)?)))
        else {
            return false;
        };
        let Some(location) = pdu.location() else { return false };
        let cells: Vec<_> = rules.grids().map(|grid| grid.cell(location)).collect();
        if self.seen.get(&entity).is_some_and(|before| before.cells == cells) {
            return false;
        }
        let neighbors =
            rules.grids().zip(&cells).filter_map(|(grid, cell)| Some(grid.neighbors((*cell)?, reach)));
        let addresses = neighbors.flatten().collect();
        self.seen.insert(entity, LastPosition { cells, addresses });
        true
    }

    /// Returns the addresses to subscribe to besides [`Rules::subscribed`].
    pub fn addresses(&self, rules: &Rules) -> BTreeSet<u32> {
        let neighbors = self.seen.values().flat_map(|seen| seen.addresses.iter().copied());
        neighbors.filter(|address| !rules.subscribed.iter().any(|range| range.contains(address))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dis::ENTITY_STATE;

    /// Returns a PDU with the layout of an Entity State.
    fn pdu(exercise: u8, kind: u8, entity: Entity, location: [f64; 3]) -> Vec<u8> {
        let mut bytes = vec![0; 144];
        bytes[..4].copy_from_slice(&[6, exercise, kind, 1]);
        bytes[8..10].copy_from_slice(&144u16.to_be_bytes());
        for (at, number) in entity.into_iter().enumerate() {
            bytes[12 + 2 * at..][..2].copy_from_slice(&number.to_be_bytes());
        }
        for (axis, metres) in location.into_iter().enumerate() {
            bytes[48 + 8 * axis..][..8].copy_from_slice(&metres.to_be_bytes());
        }
        bytes
    }

    fn grid() -> Grid {
        Grid::in_world(1_000, 2, [100.0, -50.0, 0.0], vec![4, 3], 10.0).unwrap()
    }

    fn rule(target: Target) -> Rule {
        let [exercise, kind, family, site] = std::array::from_fn(|_| Numbers::default());
        Rule { exercise, kind, family, site, priority: false, max_wait: None, target }
    }

    #[test]
    fn the_first_matching_rule_applies() {
        let only = |range| Numbers(vec![range]);
        let rules = Rules {
            rules: vec![
                Rule { exercise: only(9..=9), ..rule(Target::Drop) },
                Rule { kind: only(1..=1), ..rule(Target::Grid(grid())) },
                Rule { kind: Numbers(vec![2..=3, 7..=7]), site: only(5..=6), ..rule(Target::Address(77)) },
                Rule { family: only(1..=1), kind: only(1..=2), ..rule(Target::Address(78)) },
            ],
            ..Rules::default()
        };
        let of = |exercise, kind, site, location| {
            let bytes = pdu(exercise, kind, [site, 1, 1], location);
            rules.address(Pdu::split(&bytes).unwrap().0).map(|(address, ..)| address)
        };
        let inside = [125.0, -35.0, 1e6];
        assert_eq!(of(1, ENTITY_STATE, 1, inside), Some(1_000 + 2 * (2 + 4)));
        assert_eq!(of(9, ENTITY_STATE, 1, inside), None);
        assert_eq!(of(1, ENTITY_STATE, 1, [99.9, -35.0, 0.0]), Some(78), "outside the grid");
        assert_eq!(
            (of(1, 7, 6, inside), of(1, 2, 5, inside), of(1, 2, 7, inside)),
            (Some(77), Some(77), Some(78))
        );
        assert_eq!(of(1, 20, 5, inside), Some(0));
        // A rule with sites does not match a PDU without a site.
        let mut short = pdu(1, 7, [5, 1, 1], inside);
        short.truncate(12);
        short[8..10].copy_from_slice(&12u16.to_be_bytes());
        assert_eq!(rules.address(Pdu::split(&short).unwrap().0), Some((0, false, None)));
    }

    #[test]
    fn cells_are_half_open_and_nan_is_in_no_cell() {
        let grid = grid();
        for (x, cell) in
            [(100.0, Some(0)), (109.999, Some(0)), (110.0, Some(1)), (139.9, Some(3)), (140.0, None)]
        {
            assert_eq!(grid.cell([x, -50.0, 0.0]).map(|cell| cell[0]), cell, "{x}");
        }
        for x in [99.999, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e300] {
            assert_eq!(grid.cell([x, -50.0, 0.0]), None);
            assert_eq!(
                grid.cell([100.0, -50.0, x]),
                if x.is_finite() { Some([0, 0, 0]) } else { None },
                "{x}"
            );
        }
        let last = 1_000 + 2 * 11;
        assert_eq!((grid.address([3, 2, 0]), grid.address([4, 2, 0])), (Some(last), None));
        assert_eq!(
            grid.neighbors([0, 0, 0], 1).into_iter().collect::<Vec<_>>(),
            [1_000, 1_002, 1_008, 1_010]
        );
        assert_eq!(grid.neighbors([3, 2, 0], 9).len(), 12);
    }

    #[test]
    fn invalid_grids_are_refused() {
        let world =
            |first, step, cells: &[u32], size| Grid::in_world(first, step, [0.0; 3], cells.into(), size);
        assert_eq!(world(0, 1, &[256, 256], 1.0).map(|grid| grid.address([255, 255, 0])), Ok(Some(65_535)));
        let end = u32::MAX - 65_535;
        assert_eq!(world(end, 1, &[256, 256], 1.0).map(|grid| grid.last()), Ok(u32::MAX));
        assert_eq!(world(end + 1, 1, &[256, 256], 1.0), Err(InvalidGrid::Addresses));
        assert_eq!(world(end, 2, &[256, 256], 1.0), Err(InvalidGrid::Addresses));
        assert_eq!(world(0, 1, &[256, 257], 1.0), Err(InvalidGrid::Addresses));
        assert_eq!(world(0, 0, &[2], 1.0), Err(InvalidGrid::Addresses));
        assert_eq!(world(0, 1, &[u32::MAX, u32::MAX, 9], 1.0), Err(InvalidGrid::Addresses));
        assert_eq!(
            (world(0, 1, &[], 1.0), world(0, 1, &[1; 4], 1.0)),
            (Err(InvalidGrid::Axes), Err(InvalidGrid::Axes))
        );
        assert_eq!(world(0, 1, &[0, 5], 1.0), Err(InvalidGrid::Axes));
        assert_eq!(
            (world(0, 1, &[5], 0.0), world(0, 1, &[5], f64::NAN)),
            (Err(InvalidGrid::Size), Err(InvalidGrid::Size))
        );
        assert_eq!(Grid::on_earth(0, 1, [91.0, 0.0], vec![1, 1], 1.0), Err(InvalidGrid::Origin));
        assert_eq!(Grid::on_earth(0, 1, [0.0, 0.0], vec![1, 1, 1], 1.0), Err(InvalidGrid::Axes));
        assert_eq!(Grid::in_world(0, 1, [f64::NAN, 0.0, 0.0], vec![1], 1.0), Err(InvalidGrid::Origin));
    }

    #[test]
    fn a_grid_on_earth_is_aligned_east_and_north() {
        let grid = Grid::on_earth(0, 1, [36.6, -121.9], vec![10, 10], 1_000.0).unwrap();
        // The origin is on the ellipsoid, at the right longitude, with a perpendicular plane.
        let [x, y, z] = grid.origin;
        let on = (x * x + y * y) / 6_378_137f64.powi(2) + z * z / 6_356_752.314_245f64.powi(2);
        assert!((on - 1.0).abs() < 1e-12, "{on}");
        assert!((libm::atan2(y, x).to_degrees() + 121.9).abs() < 1e-9);
        let upright = [x / 6_378_137f64.powi(2), y / 6_378_137f64.powi(2), z / 6_356_752.314_245f64.powi(2)];
        let latitude = libm::atan2(upright[2], libm::sqrt(upright[0] * upright[0] + upright[1] * upright[1]));
        assert!((latitude.to_degrees() - 36.6).abs() < 1e-9);
        let length = |v: [f64; 3]| v.iter().map(|x| x * x).sum::<f64>();
        assert!(grid.axes.iter().all(|axis| (length(*axis) - 1.0).abs() < 1e-12));
        let location = |east: f64, north: f64| {
            std::array::from_fn(|n| grid.origin[n] + east * grid.axes[0][n] + north * grid.axes[1][n])
        };
        assert_eq!(grid.cell(location(2_500.0, 7_001.0)), Some([2, 7, 0]));
        assert_eq!(grid.cell(location(-1.0, 7_001.0)), None);
        // The second grid lies 0.01 degrees of latitude, about 1.1 km, to the north.
        let north = Grid::on_earth(0, 1, [36.61, -121.9], vec![1, 1], 1.0).unwrap().origin;
        assert_eq!(grid.cell([north[0], north[1], north[2] + 1e-3]).map(|cell| cell[1]), Some(1));
    }

    #[test]
    fn subscribed_cells_follow_an_entity() {
        let rules = Rules {
            rules: vec![rule(Target::Grid(grid()))],
            subscribed: vec![5..=5, 1_000..=1_000],
            around_entities: [([7, 8, 9], 1), ([7, 8, 10], 0)].into(),
            ..Rules::default()
        };
        let mut following = EntityTracker::default();
        let mut observe = |kind, entity, x| {
            let bytes = pdu(1, kind, entity, [x, -50.0, 0.0]);
            let changed = following.observe(&rules, Pdu::split(&bytes).unwrap().0);
            (changed, following.addresses(&rules).into_iter().collect::<Vec<_>>())
        };
        assert_eq!(observe(ENTITY_STATE, [1, 2, 3], 120.0), (false, vec![]));
        assert_eq!(observe(ENTITY_STATE, [7, 8, 10], 139.0), (true, vec![1_006]));
        let (changed, addresses) = observe(ENTITY_STATE, [7, 8, 9], 139.0);
        assert_eq!((changed, addresses), (true, vec![1_004, 1_006, 1_012, 1_014]));
        assert!(!observe(ENTITY_STATE, [7, 8, 9], 131.0).0, "the same cell");
        assert!(!observe(2, [7, 8, 9], 101.0).0, "no Entity State");
        assert_eq!(observe(ENTITY_STATE, [7, 8, 9], 200.0), (true, vec![1_006]), "the entity left the grid");
    }
}
