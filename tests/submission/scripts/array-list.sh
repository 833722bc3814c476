#!/bin/bash
#SBATCH -a 1,3,5-9:2,20
