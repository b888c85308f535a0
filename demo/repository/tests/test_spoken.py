import unittest

from clockwork.spoken import spoken


class SpokenTest(unittest.TestCase):
    def test_one_of_a_unit_has_no_plural(self):
        self.assertEqual(spoken(60), "1 minute")

    def test_units_are_listed_from_large_to_small(self):
        self.assertEqual(spoken(3723), "1 hour, 2 minutes and 3 seconds")

    def test_no_time_at_all_is_still_said(self):
        self.assertEqual(spoken(0), "0 seconds")


if __name__ == "__main__":
    unittest.main()
