/* See gauss.h. Loops run along arrays without a reduction, so that the compiler may use vectors
 * without changing the order of any sum: the results are the same bits on every machine. */
#include "daemon/search/gauss.h"

#include "daemon/search/number.h"

#include <math.h>
#include <string.h>

/* How strongly the mean is drawn to 0, and the variance to 1: worth so many observations. */
#define MEAN_PRIOR 0.3
#define SLOPE_PRIOR 2.0
#define SLOPE_CENTRE 0.5
#define VARIANCE_PRIOR 2.0

#define LEAST_PIVOT 1e-9
#define LEAST_VARIANCE 1e-6f

/* likeness[from..to) of one place to the points there. */
static void liken(const struct gauss *gauss, const float *place, size_t from, size_t to,
    double *restrict likeness)
{
    for (size_t i = from; i < to; i++)
        likeness[i] = 1;
    for (size_t p = 0; p < gauss->width; p++) {
        const float *restrict others = gauss->places[p];
        double weight = gauss->weights[p];
        float own = place[p];
        if (gauss->is_code[p])
            for (size_t i = from; i < to; i++)
                likeness[i] *= 1 + (others[i] != own ? weight : 0);
        else
            for (size_t i = from; i < to; i++) {
                double distance = own - others[i];
                likeness[i] *= 1 + weight * (distance * distance);
            }
    }
    for (size_t i = from; i < to; i++)
        likeness[i] = 1 / likeness[i];
}

static void place_of(const struct gauss *gauss, size_t i, float *place)
{
    for (size_t p = 0; p < gauss->width; p++)
        place[p] = gauss->places[p][i];
}

static void store_rows(struct gauss *gauss)
{
    for (size_t i = 0; i < gauss->count; i++) {
        for (size_t j = 0; j < i; j++)
            gauss->factor[i][j] = (float)gauss->columns[j][i];
        gauss->inverse_diagonal[i] = (float)(1 / gauss->columns[i][i]);
    }
}

/* Returns the logarithm of the determinant of the factor. */
static double factorize(struct gauss *gauss)
{
    size_t n = gauss->count;
    double log_determinant = 0;
    for (size_t j = 0; j < n; j++) {
        float place[MANIFEST_MAX_PARAMS];
        double *restrict column = gauss->columns[j];
        place_of(gauss, j, place);
        liken(gauss, place, j, n, column);
        column[j] += gauss->noise;
        for (size_t k = 0; k < j; k++) {
            const double *restrict earlier = gauss->columns[k];
            double multiple = earlier[j];
            for (size_t i = j; i < n; i++)
                column[i] -= multiple * earlier[i];
        }
        double pivot = column[j] < LEAST_PIVOT ? LEAST_PIVOT : column[j];
        log_determinant += 0.5 * number_log2(pivot);
        column[j] = sqrt(pivot);
        double inverse = 1 / column[j];
        for (size_t i = j + 1; i < n; i++)
            column[i] *= inverse;
    }
    return log_determinant;
}

/* vector := factor^-1 vector */
static void solve_forward(const struct gauss *gauss, double *restrict vector)
{
    for (size_t j = 0; j < gauss->count; j++) {
        const double *restrict column = gauss->columns[j];
        vector[j] /= column[j];
        for (size_t i = j + 1; i < gauss->count; i++)
            vector[i] -= vector[j] * column[i];
    }
}

/* out := factor^-T vector */
static void solve_backward(const struct gauss *gauss, const double *vector, double *out)
{
    for (size_t i = gauss->count; i-- > 0;) {
        double sum = vector[i];
        for (size_t k = i + 1; k < gauss->count; k++)
            sum -= gauss->columns[i][k] * out[k];
        out[i] = sum / gauss->columns[i][i];
    }
}

/* Mean and slope by generalized least squares, drawn to their priors; all three vectors are already
 * multiplied by factor^-1. */
static void fit_trend(
    struct gauss *gauss, const double *ones, const double *trends, const double *targets)
{
    double of_ones = MEAN_PRIOR, of_trends = SLOPE_PRIOR, cross = 0;
    double ones_sum = 0, trends_sum = SLOPE_PRIOR * SLOPE_CENTRE;
    for (size_t i = 0; i < gauss->count; i++) {
        of_ones += ones[i] * ones[i];
        of_trends += trends[i] * trends[i];
        cross += ones[i] * trends[i];
        ones_sum += ones[i] * targets[i];
        trends_sum += trends[i] * targets[i];
    }
    double determinant = of_ones * of_trends - cross * cross;
    gauss->mean = (of_trends * ones_sum - cross * trends_sum) / determinant;
    gauss->slope = (of_ones * trends_sum - cross * ones_sum) / determinant;
}

double gauss_fit(struct gauss *gauss)
{
    double ones[GAUSS_ROOM], trends[GAUSS_ROOM], residuals[GAUSS_ROOM];
    double log_determinant = factorize(gauss);
    for (size_t i = 0; i < gauss->count; i++) {
        ones[i] = 1;
        trends[i] = gauss->trends[i];
        residuals[i] = gauss->targets[i];
    }
    solve_forward(gauss, ones);
    solve_forward(gauss, trends);
    solve_forward(gauss, residuals);
    fit_trend(gauss, ones, trends, residuals);
    double squares = VARIANCE_PRIOR;
    for (size_t i = 0; i < gauss->count; i++) {
        residuals[i] -= gauss->mean * ones[i] + gauss->slope * trends[i];
        squares += residuals[i] * residuals[i];
    }
    double freedom = (double)gauss->count + VARIANCE_PRIOR;
    gauss->variance = squares / freedom;
    solve_backward(gauss, residuals, gauss->shares);
    store_rows(gauss);
    return -0.5 * freedom * number_log2(gauss->variance) - log_determinant;
}

bool gauss_append(struct gauss *gauss, const float *place)
{
    size_t n = gauss->count;
    double row[GAUSS_ROOM];
    if (n == GAUSS_ROOM)
        return false;
    for (size_t p = 0; p < gauss->width; p++)
        gauss->places[p][n] = place[p];
    liken(gauss, place, 0, n, row);
    solve_forward(gauss, row);
    double pivot = 1 + gauss->noise;
    for (size_t i = 0; i < n; i++) {
        gauss->columns[i][n] = row[i];
        gauss->factor[n][i] = (float)row[i];
        pivot -= row[i] * row[i];
    }
    gauss->columns[n][n] = sqrt(pivot < LEAST_PIVOT ? LEAST_PIVOT : pivot);
    gauss->inverse_diagonal[n] = (float)(1 / gauss->columns[n][n]);
    gauss->shares[n] = 0; /* as if its target were the estimate */
    gauss->count = n + 1;
    return true;
}

/* What the fitted points leave open of each lane's variance, of 1. */
static void remaining_variance(const struct gauss *gauss, float (*lanes)[GAUSS_LANES], float *left)
{
    for (size_t l = 0; l < GAUSS_LANES; l++)
        left[l] = 1;
    for (size_t i = 0; i < gauss->count; i++) {
        float sums[GAUSS_LANES];
        memcpy(sums, lanes[i], sizeof sums);
        for (size_t k = 0; k < i; k++)
            for (size_t l = 0; l < GAUSS_LANES; l++)
                sums[l] -= gauss->factor[i][k] * lanes[k][l];
        for (size_t l = 0; l < GAUSS_LANES; l++) {
            sums[l] *= gauss->inverse_diagonal[i];
            left[l] -= sums[l] * sums[l];
        }
        memcpy(lanes[i], sums, sizeof sums);
    }
}

void gauss_estimate(const struct gauss *gauss, float (*places)[MANIFEST_MAX_PARAMS],
    const double *trends, size_t count, double *means, double *deviations)
{
    float lanes[GAUSS_ROOM][GAUSS_LANES], left[GAUSS_LANES];
    memset(lanes, 0, gauss->count * sizeof lanes[0]);
    for (size_t l = 0; l < count; l++) {
        double likeness[GAUSS_ROOM], sum = gauss->mean + gauss->slope * trends[l];
        liken(gauss, places[l], 0, gauss->count, likeness);
        for (size_t i = 0; i < gauss->count; i++) {
            lanes[i][l] = (float)likeness[i];
            sum += likeness[i] * gauss->shares[i];
        }
        means[l] = sum;
    }
    remaining_variance(gauss, lanes, left);
    for (size_t l = 0; l < count; l++)
        deviations[l] =
            sqrt(gauss->variance * (left[l] < LEAST_VARIANCE ? LEAST_VARIANCE : left[l]));
}
