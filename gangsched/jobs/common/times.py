"""API timestamps, without a clock module: jobs/ may import none."""


def parse_time(text: str) -> float:
    """Return an API timestamp (UTC, whole seconds) as seconds since the epoch.

    The arithmetic stands here because jobs/ may not import a clock module (proleptic Gregorian
    calendar; algorithm: H. Hinnant, days_from_civil).
    """
    date, _, clock = text.partition("T")
    year, month, day = (int(part) for part in date.split("-"))
    hours, minutes, seconds = clock.rstrip("Z").split(":")
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days = era * 146097 + day_of_era - 719468
    return days * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
