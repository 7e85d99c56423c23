// The rules of all time zones, and their other names, each as one text.
import data from "moment-timezone/data/packed/latest.json";

export const { zones, links } = data;
