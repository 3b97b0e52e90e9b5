mod station;
